"""Which cases of a test run by default: the others are slow."""

import pytest

__all__ = ["thinned"]


def thinned(cases, quick):
    """Cases for `pytest.mark.parametrize`; those that `quick` does not choose are slow.

    `quick` is a function of a case, or the cases themselves.
    """
    chosen = quick if callable(quick) else quick.__contains__
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if chosen(case) else pytest.mark.slow,
        )
        for case in cases
    ]

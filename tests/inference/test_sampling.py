"""The status of NUTS, and Ctrl-C while it samples."""

import signal
import threading

import numpy as np
import pytest
import xarray as xr

from soc_pymc.inference.sampling import _raising_interrupt, _sampling_verdict


def _groups(draws, divergent=0):
    """Groups of a sampler's result: draws (chain, draw) of one number."""
    diverging = np.zeros(draws.shape, dtype=bool)
    diverging.flat[:divergent] = True
    dims = ("chain", "draw")
    return {
        "posterior": xr.Dataset({"x": (dims, draws)}),
        "sample_stats": xr.Dataset({"diverging": (dims, diverging)}),
    }


def test_good_chains_have_converged():
    draws = np.random.default_rng(0).normal(size=(4, 500))
    found = _sampling_verdict(_groups(draws))
    assert found["converged"]
    assert found["reason"].startswith("R-hat at most 1.0")
    assert found["pareto_k"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: (x + 3 * np.arange(4)[:, None], 0), "R-hat 2."),
        (lambda x: (x, 3), "3 divergent transitions"),
        (lambda x: (x[:1], 0), "a single chain, so that R-hat is unknown"),
        (lambda x: (np.cumsum(x, axis=1), 0), "bulk effective sample"),
    ],
)
def test_bad_chains_name_the_problem_and_the_remedy(change, words):
    draws, divergent = change(np.random.default_rng(0).normal(size=(4, 500)))
    found = _sampling_verdict(_groups(draws, divergent))
    assert not found["converged"]
    assert words in found["reason"]
    knobs = "draws=, tune=, chains=" + ", target_accept=" * bool(divergent)
    assert f"raise NUTS({knobs})" in found["reason"]


def _quiet(number, frame):
    """A handler like PyMC's, which swallows the interrupt."""


@pytest.fixture
def handler():
    before = signal.signal(signal.SIGINT, _quiet)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_raised_although_the_sampler_caught_it(handler):
    with pytest.raises(KeyboardInterrupt), _raising_interrupt():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is _quiet


def _interrupted_without_draws():
    signal.raise_signal(signal.SIGINT)
    raise ValueError("no draws")


def test_errors_after_ctrl_c_are_ctrl_c_and_others_stay(handler):
    with pytest.raises(KeyboardInterrupt) as caught, _raising_interrupt():
        _interrupted_without_draws()
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="of its own"), _raising_interrupt():
        raise ValueError("of its own")
    assert signal.getsignal(signal.SIGINT) is _quiet


def test_other_threads_sample_without_handlers():
    done = []

    def work():
        with _raising_interrupt():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]

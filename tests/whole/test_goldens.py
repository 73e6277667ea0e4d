"""Numbers of the public interface are those that were recorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.studies import goldens

KEPT = goldens.read()
OTHERWISE = pytest.mark.skipif(
    KEPT.get("processor") != goldens.processor(),
    reason="fits were recorded on another processor, whose rounding chooses other draws",
)


SAME_VERSIONS = pytest.mark.skipif(
    KEPT.get("versions") != goldens.versions(),
    reason="the numbers were recorded with other versions of the libraries",
)
CHAOTIC = ("nuts",)


@SAME_VERSIONS
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=() if name in goldens.CHEAP else (pytest.mark.slow, OTHERWISE))
        for name in goldens.NAMES
        if name not in CHAOTIC
    ],
)
def test_numbers_are_those_recorded(case):
    now = json.loads(json.dumps(goldens.found(case)))
    assert goldens.departures(case, KEPT["cases"][case], now) == []


@SAME_VERSIONS
@OTHERWISE
@pytest.mark.slow
@pytest.mark.parametrize("case", CHAOTIC)
def test_chains_are_those_recorded(case):
    """Code that PyTensor has just compiled rounds differently from the same code from its cache.

    A chain is chaotic, so the numbers are those of a second process, which finds the cache filled.
    """
    words = [sys.executable, "-m", "tests.studies.goldens", "--check", "--only", case]
    root = Path(__file__).parents[2]
    subprocess.run(words, cwd=root, capture_output=True, check=False)
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 departures" in done.stdout


def test_a_departure_is_seen():
    large, small = [1.0 + i / 7 for i in range(100)], [1e-9, 3.0]
    for values in (large, small, [0.5, float("nan"), float("inf")]):
        kept = goldens.summary(values, 7)
        assert goldens.departure(kept, goldens.summary(values, 7)) == 0
        off = goldens.summary([value * (1 + 1e-6) for value in values], 7)
        assert goldens.departure(kept, off) == pytest.approx(1e-6, rel=1e-2)
    moved = goldens.summary([1e-9 * (1 + 1e-6), 3.0], 7)
    assert goldens.departure(small, moved) < 1e-14
    assert goldens.departure(small, moved, own=True) == pytest.approx(1e-6, rel=1e-2)
    swapped = [*large[:5], large[6], large[5], *large[7:]]
    assert goldens.departure(goldens.summary(large, 7), goldens.summary(swapped, 7)) > 1e-5
    assert (
        goldens.departure([1, 2], [1, 3]) == goldens.departure([1, 2], [1.0, 2.0]) == float("inf")
    )
    assert goldens.departure(["a"], ["b"]) == float("inf")
    assert goldens.departures("gamma", {"a": 1.0, "b": 2.0}, {"a": 1.0, "c": 2.0}) == [
        "gamma/b: gone",
        "gamma/c: new",
    ]

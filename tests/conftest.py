"""Shared items, statistics and fits: small, seeded, made once a session."""

import os
from pathlib import Path

import pytest

import soc_pymc as soc


@pytest.fixture(scope="session")
def small_frame():
    return soc.simulation.s1(4000, seed=3)


@pytest.fixture(scope="session")
def small_items(small_frame):
    return soc.PoissonItems(small_frame, score="score", count="count", exposure="exposure")


@pytest.fixture(scope="session")
def small_statistics(small_items):
    return soc.summarize(small_items, bins=20, progress=False)


@pytest.fixture(scope="session")
def small_fit(small_statistics):
    return soc.fit(small_statistics, method=soc.VI(seed=1), progress=False)


@pytest.fixture(scope="session")
def real_data():
    """Folder of the real data sets; tests that need it skip where it is absent."""
    folder = os.environ.get("SOC_PYMC_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: set SOC_PYMC_DATA to the folder that holds it")
    return Path(folder)

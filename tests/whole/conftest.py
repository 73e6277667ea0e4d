"""Pages draw pictures: none is left open for the tests that follow."""

import sys

import pytest


@pytest.fixture(autouse=True)
def pictures_are_closed():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")

"""All families, by name and by record."""

import pytest

from tests.family_records import RECORDS


@pytest.fixture(params=RECORDS)
def name(request):
    return request.param


@pytest.fixture
def record(name):
    return RECORDS[name]

"""The faults that statistical tests are tried with: each fits the source, and one is tried.

All of them are tried by `python -m tests.studies.broken_methods`; see docs/testing.md.
"""

import ast

import pytest

from tests.faults import FAULTS
from tests.faults_plugin import file_of, patched
from tests.studies.broken_methods import outcomes


@pytest.mark.parametrize("name", list(FAULTS))
def test_every_fault_is_in_the_source_and_has_tests(name):
    fault = FAULTS[name]
    for module, source in patched(fault).items():
        assert source != file_of(module).read_text()
        compile(source, module, "exec")
    assert fault.tests or fault.slow
    for test in fault.tests + fault.slow:
        file, _, function = test.partition("[")[0].partition("::")
        tree = ast.parse(file_of(f"tests.test_{file}").read_text())
        assert function in {x.name for x in tree.body if isinstance(x, ast.FunctionDef)}, test


def test_a_fault_fails_its_tests_and_no_others():
    tests = list(FAULTS["bands from the wrong quantile"].tests)
    other = "simulation::test_seeds"
    found = outcomes([*tests, other], "bands from the wrong quantile")
    assert found == {**dict.fromkeys(tests, "failed"), other: "passed"}

"""Statistical tests with their methods broken on purpose: each must fail.

    python -m tests.studies.broken_methods [--slow] [--fault NAME ...] [--out FILE]

For each fault of `tests.faults` its tests run twice in processes of their own: as the library is,
where all must pass, and with the fault planted by `tests.faults_plugin`, where all must fail.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pandas as pd

from tests.faults import FAULTS, Fault

__all__ = ["main", "outcomes"]

_ROOT = Path(__file__).resolve().parents[2]
_LIMIT = 1800  # seconds for the tests of a fault


def outcomes(tests: list[str], fault: str | None) -> dict[str, str]:
    """What each test came to: passed, failed, error, skipped or not run."""
    ids = [f"tests/test_{name.replace('::', '.py::')}" for name in tests]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "slow or not slow"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if fault is not None:
        command += ["-p", "tests.faults_plugin"]
        environment["SOC_PYMC_FAULT"] = fault
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command += ["-q", "--no-header", "--tb=no", f"--junitxml={report}", *ids]
        ran = subprocess.run(
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=_LIMIT
        )
        if not report.exists():
            raise SystemExit(f"pytest made no report:\n{ran.stdout}\n{ran.stderr}")
        cases = ET.parse(report).getroot().iter("testcase")
        found = {_name(case): _outcome(case) for case in cases}
    return {name: found.get(name, "not run") for name in tests}


def _name(case: ET.Element) -> str:
    return f"{case.get('classname').removeprefix('tests.test_')}::{case.get('name')}"


def _outcome(case: ET.Element) -> str:
    for tag, word in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
        if case.find(tag) is not None:
            return word
    return "passed"


def _row(fault: Fault, slow: bool) -> list[dict[str, object]]:
    tests = list(fault.slow if slow else fault.tests)
    start = time.monotonic()
    under = outcomes(tests, fault.name)
    print(f"{fault.name}: {time.monotonic() - start:.0f} s", flush=True)
    for name, outcome in under.items():
        print(f"    {outcome:8s}{name}", flush=True)
    return [{"fault": fault.name, "test": name, "under the fault": x} for name, x in under.items()]


def main() -> None:
    """Run the study; the exit status is 1 if a test passes under its fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slow", action="store_true", help="the slow tests in place of the others")
    parser.add_argument("--fault", nargs="+", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--no-plain", action="store_true", help="not without the faults too")
    parser.add_argument("--out", type=Path, default=Path("broken_methods.csv"))
    args = parser.parse_args()
    faults = [FAULTS[name] for name in args.fault]
    faults = [fault for fault in faults if (fault.slow if args.slow else fault.tests)]
    rows = [row for fault in faults for row in _row(fault, args.slow)]
    table = pd.DataFrame(rows)
    if not args.no_plain:
        plain = outcomes(sorted(set(table["test"])), None)
        table["as it is"] = table["test"].map(plain)
    table.to_csv(args.out, index=False)
    missed = table[table["under the fault"] != "failed"]
    print(f"{len(table)} pairs of {len(faults)} faults and {table['test'].nunique()} tests")
    if "as it is" in table:
        missed = pd.concat([missed, table[table["as it is"] != "passed"]])
    if len(missed):
        print(missed.to_string(index=False))
        raise SystemExit(1)
    print(
        "every test fails under its fault"
        + (", and passes as it is" if "as it is" in table else "")
    )


if __name__ == "__main__":
    main()

"""Mutation testing: small faults planted in the library's source, and whether its tests see them.

    python -m tests.studies.mutation [--module NAME ...] [--sample 60] [--out FOLDER]

Cosmic Ray plans the mutants (a session file with its operators) and its records keep the results.
A mutant is not written to disk: this process imports what the library stands on, forks, and the
child imports the mutant and all that depends on it, compiles their kernels anew and runs the
tests of its room to the first failure. So a mutant costs its tests, not the imports.

Of each place in the source and kind of operator one mutant is drawn; of these a sample of each
room. Annotations and decorators are left alone: they hold types and Numba's switches.
"""

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import os
import pkgutil
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import grimp
import numpy as np
import pandas as pd
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

import soc_pymc

__all__ = ["GROUPS", "Mutant", "main", "plan", "run", "tests_of"]

_ROOT = Path(__file__).resolve().parents[2]

_SECONDS = 600  # of processor time for the tests of a mutant: models are compiled anew for some


class OtherSource(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives some modules another source than their files hold."""

    def __init__(self, sources):
        self.sources = sources
        self.paths = {name: str(_file(name.removeprefix("soc_pymc."))) for name in sources}

    def find_spec(self, fullname, path, target=None):
        if fullname not in self.sources:
            return None
        return importlib.util.spec_from_file_location(fullname, self.paths[fullname], loader=self)

    def get_filename(self, fullname):
        return self.paths[fullname]

    def get_data(self, path):
        """No bytecode is kept, and none is found."""
        for name, file in self.paths.items():
            if path == file:
                return self.sources[name].encode()
        raise OSError(path)


def _modules() -> dict[str, list[str]]:
    """Modules by room, as names below ``soc_pymc``."""
    rooms: dict[str, list[str]] = {}
    for found in pkgutil.walk_packages(soc_pymc.__path__, "soc_pymc."):
        name = found.name.removeprefix("soc_pymc.")
        if not found.ispkg and name != "__main__":
            rooms.setdefault(name.partition(".")[0], []).append(name)
    return rooms


GROUPS = _modules()


def tests_of(module: str) -> list[Path]:
    """Tests of a module's room, those that name the module first."""
    room, _, _ = module.partition(".")
    name = re.compile(rf"\b{module.rpartition('.')[2]}\b")
    files = sorted((_ROOT / "tests" / room).glob("test_*.py"))
    return sorted(files, key=lambda file: name.search(file.read_text()) is None)


@dataclass(frozen=True)
class Mutant:
    """A mutant of one module: its source, and where and what was changed."""

    module: str
    operator: str
    line: int
    occurrence: int
    job: str

    @property
    def path(self) -> Path:
        """The module's file."""
        return _file(self.module)

    def source(self) -> str:
        """The mutated source."""
        text = mutate_code(self.path.read_text(), get_operator(self.operator)(), self.occurrence)
        assert text is not None, self
        return text

    def change(self) -> str:
        """The line as it was and as it is."""
        plain, mutated = self.path.read_text().splitlines(), self.source().splitlines()
        pairs = [(a, b) for a, b in zip(plain, mutated, strict=False) if a != b]
        return "\n".join(f"- {a.strip()}\n+ {b.strip()}" for a, b in pairs)


def _file(module: str) -> Path:
    return _ROOT / "soc_pymc" / (module.replace(".", "/") + ".py")


def _left_alone(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Spans of annotations, decorators and blocks for type checkers."""
    nodes: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        nodes += getattr(node, "decorator_list", [])
        nodes += [x for x in (getattr(node, "annotation", None),) if x is not None]
        nodes += [x for x in (getattr(node, "returns", None),) if x is not None]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes.append(node)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes]


_ARITHMETIC = {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}
_ORDER = {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"}


def _fits(operator: str) -> bool:
    """Not an operator of another sort, such as bits of floats: these fail at once."""
    name, _, change = operator.partition("_")
    before, _, after = change.partition("_")
    sort = {"BinaryOperator": _ARITHMETIC, "ComparisonOperator": _ORDER}
    own = sort.get(name.removeprefix("core/Replace"), set())
    return (before in own) == (after in own)


def _kind(operator: str) -> str:
    """Operators that replace the same thing, such as all that replace a plus."""
    return "_".join(operator.split("_")[:2])


def plan(names: list[str], sample: int, seed: int, session: WorkDB) -> list[Mutant]:
    """A sample of the mutants of some modules, module by module."""
    rng = np.random.default_rng([seed, *" ".join(names).encode()])
    modules = {_file(m): m for m in names}
    init(list(modules), session, {})
    spans = {m: _left_alone(_file(m).read_text()) for m in names}
    places: dict[tuple[str, tuple[int, int], str], list[Mutant]] = {}
    for item in session.work_items:
        (spec,) = item.mutations
        module = modules[Path(spec.module_path)]
        alone = any(a <= spec.start_pos and spec.end_pos <= b for a, b in spans[module])
        if alone or spec.operator_name == "core/RemoveDecorator" or not _fits(spec.operator_name):
            continue
        mutant = Mutant(module, spec.operator_name, spec.start_pos[0], spec.occurrence, item.job_id)
        places.setdefault((module, spec.start_pos, _kind(spec.operator_name)), []).append(mutant)
    one_each = [
        sorted(places[key], key=lambda x: (x.operator, x.occurrence))[
            rng.integers(len(places[key]))
        ]
        for key in sorted(places)
    ]
    chosen = rng.permutation(len(one_each))[:sample] if sample else np.arange(len(one_each))
    return [one_each[i] for i in sorted(chosen)]


def _warm() -> None:
    """Import what every child needs."""
    importlib.import_module("pytest")
    for found in pkgutil.walk_packages(soc_pymc.__path__, "soc_pymc."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def _forget(module: str, graph: grimp.ImportGraph) -> None:
    """Drop a module and all that depends on it, so that they are imported anew."""
    name = f"soc_pymc.{module}"
    for old in {name, *graph.find_downstream_modules(name)} - {"soc_pymc"}:
        sys.modules.pop(old, None)
        parent, _, last = old.rpartition(".")
        vars(sys.modules.get(parent, soc_pymc)).pop(last, None)


def _child(module: str, source: str, graph: grimp.ImportGraph, log: Path, slow: bool) -> int:
    """In the forked process: import the mutant, run the tests, say how they ended."""
    import numba
    import pytensor
    import pytest

    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    with tempfile.TemporaryDirectory() as folder:
        # nothing compiled from the true source may serve the mutant
        numba.config.CACHE_DIR = folder
        pytensor.config.numba__cache = not module.startswith("families.")
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.chmod(folder, 0o755)  # PostgreSQL's own user has its cluster there
        _forget(module, graph)
        sys.meta_path.insert(0, OtherSource({f"soc_pymc.{module}": source}))
        words = ["-x", "-q", "-p", "no:cacheprovider", "--no-header"]
        words += ["-m", "slow or not slow"] if slow else []
        return int(pytest.main([*words, *map(str, tests_of(module))]))


def run(module: str, source: str, graph: grimp.ImportGraph, log: Path, slow: bool = False) -> str:
    """Outcome of a room's tests under a source: survived, killed, crashed, timeout."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 5))
            code = _child(module, source, graph, log, slow)
        finally:
            os._exit(code)
    end = time.monotonic() + 10 * _SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            named = {0: "survived", 5: "no tests", -signal.SIGXCPU: "timeout"}
            return named.get(code, "killed" if code > 0 else "crashed")
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timeout"


def _record(session: WorkDB, mutant: Mutant, outcome: str) -> None:
    """Keep the outcome in Cosmic Ray's session."""
    worker = WorkerOutcome.ABNORMAL if outcome in ("crashed", "timeout") else WorkerOutcome.NORMAL
    verdict = TestOutcome.SURVIVED if outcome == "survived" else TestOutcome.KILLED
    session.set_result(mutant.job, WorkResult(worker, outcome, verdict, mutant.change()))


_NAMES = ["module", "operator", "occurrence"]


def _known(results: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Which results are of mutants that the other has too."""
    return pd.MultiIndex.from_frame(results[_NAMES]).isin(pd.MultiIndex.from_frame(other[_NAMES]))


def _believe(rows: list[dict], graph: grimp.ImportGraph, log: Path, slow: bool) -> None:
    """Where no mutant survived, the true source must, or the deaths prove nothing."""
    alive = {row["module"] for row in rows if row["outcome"] == "survived"}
    for module in sorted({row["module"] for row in rows} - alive):
        if (outcome := run(module, _file(module).read_text(), graph, log, slow)) != "survived":
            raise SystemExit(f"{module} fails unchanged: {outcome}\n{log.read_text()}")


def _run_group(
    group: str,
    modules: list[str],
    args: argparse.Namespace,
    graph: grimp.ImportGraph,
    last: pd.DataFrame | None,
) -> pd.DataFrame:
    session = WorkDB(str(args.out / f"{group}.sqlite"), WorkDB.Mode.create)
    mutants = plan(modules, args.sample, args.seed, session)
    if last is not None:
        left = {tuple(x) for x in last.loc[last["outcome"] == "survived", _NAMES].to_numpy()}
        mutants = [m for m in mutants if (m.module, m.operator, m.occurrence) in left]
    rows = []
    for mutant in mutants:
        start = time.monotonic()
        outcome = run(mutant.module, mutant.source(), graph, args.out / "log.txt", args.slow)
        _record(session, mutant, outcome)
        change, seconds = mutant.change(), time.monotonic() - start
        rows.append(dict(vars(mutant), group=group, outcome=outcome, change=change))
        print(f"{seconds:.0f} s {outcome} {mutant.module}:{mutant.line} {mutant.operator}")
        if outcome in ("survived", "no tests"):
            print(change)
        sys.stdout.flush()
    _believe(rows, graph, args.out / "log.txt", args.slow)
    session.close()
    return pd.DataFrame(rows)


def _table(results: pd.DataFrame) -> str:
    """Mutants by outcome, a row for each module and group."""
    lines = [
        "| module | mutants | killed | crashed | timeout | survived |",
        "|---|---|---|---|---|---|",
    ]
    groups = [(name, part) for name, part in results.groupby("module", sort=False)]
    groups += [(f"**{name}**", part) for name, part in results.groupby("group", sort=False)]
    for name, part in groups:
        n = Counter(part["outcome"])
        cells = [len(part), *(n[k] for k in ("killed", "crashed", "timeout", "survived"))]
        lines.append(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the study and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", nargs="+", default=list(GROUPS), metavar="ROOM or MODULE")
    parser.add_argument("--sample", type=int, default=60, help="mutants of a room; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("mutation"))
    parser.add_argument("--slow", action="store_true", help="the slow tests too")
    parser.add_argument("--survivors", action="store_true", help="of the last run in --out alone")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    asked = {x.removeprefix("soc_pymc.") for m in args.module for x in GROUPS.get(m, [m])}
    if unknown := asked - set().union(*GROUPS.values()):
        parser.error(f"no such room or module: {', '.join(sorted(unknown))}")
    groups = {g: [m for m in modules if m in asked] for g, modules in GROUPS.items()}
    last = pd.read_csv(args.out / "mutants.csv") if args.survivors else None
    _warm()
    graph = grimp.build_graph("soc_pymc", exclude_type_checking_imports=True, cache_dir=None)
    results = last
    for group, modules in groups.items():
        if modules:
            part = _run_group(group, modules, args, graph, last)
            keep = None if results is None else results[~_known(results, part)]
            results = pd.concat([keep, part], ignore_index=True)
            results.to_csv(args.out / "mutants.csv", index=False)
    text = _table(results)
    left = results[results["outcome"].isin(["survived", "no tests"])]
    for row in left.itertuples():
        text += f"\n\n{row.module}:{row.line} {row.operator}\n{row.change}"
    (args.out / "report.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

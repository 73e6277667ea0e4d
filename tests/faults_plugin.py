"""A pytest plugin that plants a fault in the library, and leaves the tests as they are.

    SOC_PYMC_FAULT=NAME python -m pytest -p tests.faults_plugin tests/test_...

The fault is one of `tests.faults`: some lines of a module's source, which stand there once and are
others when the module is imported. Nothing compiled from the true source serves the other one.
"""

import importlib.abc
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

from tests.faults import FAULTS

__all__ = ["OtherSource", "patched", "pytest_configure", "pytest_report_header"]

_ROOT = Path(__file__).resolve().parents[1]


class OtherSource(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Gives some modules another source than their files hold."""

    def __init__(self, sources):
        self.sources = sources
        self.paths = {name: str(file_of(name)) for name in sources}

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


def file_of(module):
    """The file of a module of this repository."""
    return _ROOT / (module.replace(".", "/") + ".py")


def patched(fault):
    """Sources of the modules of a fault, by name."""
    sources = {}
    for module, old, new in fault.patches:
        source = sources.get(module) or file_of(module).read_text()
        if (times := source.count(old)) != 1:
            raise ValueError(f"fault {fault.name}: {times} times in {module}, not once: {old!r}")
        sources[module] = source.replace(old, new)
    return sources


def pytest_configure(config):
    fault = FAULTS[os.environ["SOC_PYMC_FAULT"]]
    sources = patched(fault)
    early = sorted(set(sources) & set(sys.modules))
    assert not early, f"imported before the fault was planted: {early}"
    folder = tempfile.TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    if fault.compiled:
        os.environ["NUMBA_CACHE_DIR"] = folder.name
        os.environ["PYTENSOR_FLAGS"] = "numba__cache=False"
    sys.meta_path.insert(0, OtherSource(sources))


def pytest_report_header(config):
    return f"fault planted: {os.environ['SOC_PYMC_FAULT']}"

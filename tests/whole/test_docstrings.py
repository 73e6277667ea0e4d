"""Docstrings of the public names: an entry for each parameter with its type, and what is raised."""

import inspect
import re

import pytest

from tests.whole.test_public_names import PUBLIC, value_of

SECTION = re.compile(r"^(\w+)\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", re.DOTALL | re.M)
ENTRY = re.compile(r"^(\S.*)\n((?:    .*\n|\n)*)", re.M)
# a check of an argument, `raise` or a rule that gets the argument's name
CHECK = re.compile(r"raise \w+Error|\((\w+), \"\1\"[,)]|convert_fields\(")
ARRAY = re.compile("array_like|numpy.ndarray|ArrayLike|NDArray")
DOCUMENTED = [
    path
    for path in PUBLIC
    if callable(value := value_of(path))
    and not (isinstance(value, type) and issubclass(value, Exception))
]
DOCUMENTED += [
    f"soc.SecondOrderCalibrator.{method}"
    for method in ("fit", "predict", "predict_std", "predict_interval", "score")
]


def sections_of(value):
    """Returns the entries of each section of a docstring, heading and text, by its title."""
    text = f"{inspect.getdoc(value)}\n"
    return {title: dict(ENTRY.findall(body)) for title, body in SECTION.findall(text)}


def own_code(value):
    """Returns the code of a function, or that with which a class checks its fields."""
    if not isinstance(value, type):
        return inspect.getsource(value)
    classes = [c for c in value.__mro__ if c.__module__.startswith("soc_pymc")]
    methods = (vars(c).get(n) for c in classes for n in ("__init__", "__post_init__"))
    written = [m for m in methods if m and not m.__code__.co_filename.startswith("<")]
    return "".join(map(inspect.getsource, written))


@pytest.mark.parametrize("path", DOCUMENTED)
def test_every_parameter_has_an_entry_with_its_type(path):
    """Entries of arrays name a shape; a result has a type."""
    value = value_of(path)
    sections = sections_of(value)
    parameters = dict(inspect.signature(value).parameters)
    parameters.pop("self", None)
    if "Attributes" in sections and "Parameters" not in sections:
        parameters = {}  # a result, which users do not make
    heads = (head.lstrip("*") for head in sections.get("Parameters", ()))
    entries = dict(head.partition(" : ")[::2] for head in heads)
    assert sorted(entries) == sorted(parameters)
    assert all(" : " in head for head in sections.get("Attributes", ()))
    for name, parameter in parameters.items():
        assert entries[name], name
        if ARRAY.search(entries[name]) or ARRAY.match(str(parameter.annotation)):
            assert "shape" in entries[name], name
    if not isinstance(value, type) and inspect.signature(value).return_annotation is not None:
        assert all(re.match(r"\w+ : |[\w.]", head) for head in sections["Returns"])


@pytest.mark.parametrize("path", DOCUMENTED)
def test_errors_are_told(path):
    value = value_of(path)
    if CHECK.search(own_code(value)):
        assert {"Raises"} <= sections_of(value).keys()

"""Options of the command line, from signatures and docstrings of the functions they are for."""

import inspect
import re
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, get_args

import soc_pymc as soc

_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(^\w+\n-+\n|\Z)", re.DOTALL | re.M)
_ENTRY = re.compile(r"^(\w+) : .*\n((?:    .*\n|\n)+)", re.M)
_SENTENCE = re.compile(r".*?(?=[.:;] |\.$)")

Option = Callable[[ArgumentParser], Any]


def option(parameter: str, flag: str = "", **settings: Any) -> Option:
    """An option for a parameter of a function of the package, ``"summarize.bins"``.

    Its type, default and help text are those of the parameter, unless settings for argparse say
    otherwise. The function is only imported where the option is added to a parser.
    """
    owner, _, name = parameter.rpartition(".")

    def add(parser: ArgumentParser) -> None:
        function = attrgetter(owner)(soc)
        known = inspect.signature(function).parameters[name]
        prefix = "--no-" if known.default is True else "--"
        text = documented(function)[name].replace("%", "%%")
        if type(known.default) in (int, float, str):
            text += f" (default: {known.default})"
        inferred = {} if "action" in settings else _settings(known)
        if inferred.get("action") == "append":
            text += "; may be given several times"
        described = {"dest": name, "help": text, **inferred, **settings}
        parser.add_argument(flag or prefix + flag_of(name), **described)

    return add


def word(name: str, text: str, **settings: Any) -> Option:
    """An option that is not a parameter, or a word without a flag."""
    return lambda parser: parser.add_argument(name, help=text, **settings)


def flag_of(role: str) -> str:
    """Return the name of a parameter or role as a word of the command line."""
    return role.replace("_", "-")


def documented(function: Callable[..., Any]) -> dict[str, str]:
    """Return the first sentence that a function's docstring has on each parameter."""
    section = _PARAMETERS.search(f"{inspect.getdoc(function)}\n")
    entries = _ENTRY.findall(section[1]) if section else []
    texts = {name: " ".join(text.replace("`", "").split()) for name, text in entries}
    return {
        name: (_SENTENCE.match(f"{text} ") or [text])[0] for name, text in texts.items()
    }


def _settings(parameter: inspect.Parameter) -> dict[str, Any]:
    """Return what argparse needs to read values of a parameter's type."""
    types = get_args(parameter.annotation) or (parameter.annotation,)
    if isinstance(parameter.default, bool):
        return {"action": "store_false" if parameter.default else "store_true"}
    if all(isinstance(value, str) for value in types):
        return {"choices": types}
    if Sequence[str] in types:
        return {"action": "append"}
    several = {"nargs": "*"} if isinstance(parameter.default, tuple) else {}
    return {"type": next((t for t in (int, float) if t in types), str), **several}

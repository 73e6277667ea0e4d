"""Options of the command line, from signatures and docstrings of the functions they are for."""

import inspect
import re
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, get_args

import soc_pymc as soc

_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(^\w+\n-+\n|\Z)", re.DOTALL | re.M)
_ENTRY = re.compile(r"^(\w+) : .*\n((?:    .*\n|\n)+)", re.M)
_SENTENCE = re.compile(r".*?(?=[.:;] |\.$)")

Option = Callable[[ArgumentParser], Any]


def options_of(function: str, **settings: dict[str, Any]) -> Option:
    """The parameters of a function of the package that words of a command can give.

    Types, defaults and help texts come from the parameters; `settings` overrides arguments of
    argparse by the name of a parameter. The function is only imported where options are added.
    """

    def add(parser: ArgumentParser) -> None:
        for name, parameter in inspect.signature(
            getattr(soc, function)
        ).parameters.items():
            if name in settings or _settings(parameter):
                option(f"{function}.{name}", **settings.get(name, {}))(parser)

    return add


def option(parameter: str, flag: str = "", **settings: Any) -> Option:
    """The option for one parameter, ``"summarize.bins"``, as in `options_of`."""
    function, _, name = parameter.partition(".")

    def add(parser: ArgumentParser) -> None:
        known = inspect.signature(getattr(soc, function)).parameters[name]
        prefix = "--no-" if known.default is True else "--"
        text = documented(getattr(soc, function))[name].replace("%", "%%")
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
    """Return what argparse needs to read values of a parameter's type; nothing of other types."""
    types = get_args(parameter.annotation) or (parameter.annotation,)
    if complex in types:  # older NumPys take ArrayLike apart, which no word can give
        return {}
    if isinstance(parameter.default, bool):
        return {"action": "store_false" if parameter.default else "store_true"}
    if Sequence[str] in types:
        return {"action": "append"}
    choices = [value for value in types if isinstance(value, str)]
    for literal in types:
        choices += [value for value in get_args(literal) if isinstance(value, str)]
    if choices:
        return {"choices": choices}
    for kind in (int, float, str):
        if kind in types:
            several = {"nargs": "*"} if isinstance(parameter.default, tuple) else {}
            needed = parameter.default is parameter.empty and NoneType not in types
            return {"type": kind, "required": needed, **several}
    return {}

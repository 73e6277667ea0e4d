"""Options of the command line from signatures and docstrings, and arguments from the options."""

import inspect
import os
import re
from argparse import Action, ArgumentParser
from argparse import Namespace as Chosen
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from glob import glob
from types import NoneType
from typing import Any, Literal, get_args

import soc_pymc as soc

from .._lib.arguments import FitError, StatisticsError
from .._lib.files import check_target
from ..data.items import ITEMS, NO_SCORE, AnyItems, Average, Items, Roles
from ..data.sources import will_match
from ..families import FAMILIES, OUTCOMES
from ..families.family import Outcome
from ..families.priors import Prior, Spline
from ..fits import Fit, Method

_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(^\w+\n-+\n|\Z)", re.DOTALL | re.M)
_ENTRY = re.compile(r"^(\w+) : .*\n((?:    .*\n|\n)+)", re.M)
_SENTENCE = re.compile(r".*?(?=[.:;] |\.$)")
Option = Callable[[ArgumentParser], Any]
OUTCOME_ROLES = [r for kind in OUTCOMES.values() for r in (kind.observed, kind.size)]
# arguments of items that name no column of their table
ITEM_OPTIONS = tuple(
    dict.fromkeys(
        name
        for items in ITEMS.values()
        for name in inspect.signature(items).parameters
        if name not in {*inspect.signature(AnyItems).parameters, *OUTCOME_ROLES}
    )
)
_OTHERS = ("id", "fold", "cluster", "date", "weight")
METHODS = {"vi": "VI", "nuts": "NUTS", "five-steps": "FiveSteps"}
# priors by name, the default of each kind of items first
PRIORS: dict[str, type[Prior]] = {
    re.sub(r"\B[A-Z]", r"-\g<0>", prior.__name__).lower(): prior
    for field in ("prior", "mixture")
    for prior in (getattr(family, field) for family in FAMILIES.values())
}
AUTO: Literal["auto"] = "auto"
_SWITCHES = ("monotone", "bin_effects", "zero", "atoms", "groups")
_WHICH = "say which columns to use"
# an argument of Python in a message, or a call with arguments
_IN_PYTHON = re.compile(
    r"""(?<![\w.'"/-])(?:
        (?:(?:prior|method)=)?(?P<soc>soc\.)?(?P<call>\w+)\((?P<inside>[^()]*)\)
        |(?P<name>[a-z]\w*)=(?P<value>"[^"]*"|'[^']*'|\([^()]*\)|\[[^]]*\]
            |(?:[\w+-]|\.(?=\w))*+)(?![\w(/\\])
    )""",
    re.VERBOSE,
)
_TERM = re.compile(r"exposure=soc\.Spline\([^()]*\)")


# --- options -------------------------------------------------------------------------------------


def options_of(function: str, **settings: dict[str, Any]) -> Option:
    """The parameters of a function of the package that words of a command can give.

    Types, defaults and help texts come from the parameters; `settings` overrides arguments of
    argparse by the name of a parameter. The function is only imported where options are added.
    """

    def add(parser: ArgumentParser) -> None:
        parameters = inspect.signature(getattr(soc, function)).parameters
        for name, parameter in parameters.items():
            named = parameter.kind is not parameter.VAR_KEYWORD
            if named and (name in settings or _settings(parameter)):
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


def options_of_items(*names: str) -> Option:
    """Parameters of items of all kinds, each as the first kind that has it describes it.

    With `names`, of these alone.
    """

    def add(parser: ArgumentParser) -> None:
        added = set[str]()
        for items in ITEMS.values():
            for name, parameter in inspect.signature(items).parameters.items():
                chosen = name in (names or (name,)) and name not in added
                if chosen and _settings(parameter):
                    option(f"{items.__name__}.{name}")(parser)
                    added.add(name)

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
    # older NumPys take ArrayLike apart, which no word can give
    if complex in types:
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
    if {float, str} <= {*types}:
        return {"type": number_or_name}
    for kind in (int, float, str):
        if kind in types:
            several = {"nargs": "*"} if isinstance(parameter.default, tuple) else {}
            needed = parameter.default is parameter.empty and NoneType not in types
            return {"type": kind, "required": needed, **several}
    return {}


def in_options(
    text: str, actions: Mapping[str, Action], commands: Collection[str]
) -> str:
    """A message with options in place of Python's arguments, whose names are those of actions."""
    heads = {name.replace("-", "_"): f"soc-pymc {name}" for name in commands}
    heads |= {prior.__name__: f"--prior {name}" for name, prior in PRIORS.items()}
    heads |= {method: f"--method {name}" for name, method in METHODS.items()}
    heads |= dict.fromkeys(
        ["Spline", *(items.__name__ for items in ITEMS.values())], ""
    )

    def argument(name: str, value: str) -> str:
        """The option, or nothing if there is none."""
        if (name, value) == ("score", "None"):
            return "--no-score"
        if name not in actions:
            return ""
        action = actions[name]
        flag = action.option_strings[-1]
        if action.nargs == 0:
            return flag if value in ("", str(action.const)) else ""
        words = re.sub(r"""[][(),]|['"](?=\w)|(?<=\w)['"]""", "", value)
        return f"{flag} {words}".rstrip()

    def worded(found: re.Match[str]) -> str:
        name = found["call"]
        if not name:
            return argument(found["name"], found["value"]) or found[0]
        arguments = [x for x in found["inside"].split(", ") if "=" in x]
        options = [argument(*x.split("=", 1)) for x in arguments]
        if name not in heads or not all(options):
            return found[0]
        head = heads[name] if found["soc"] else ""
        return " ".join(filter(None, [head, *options])) or found[0]

    return _IN_PYTHON.sub(worded, _TERM.sub("term=True", text))


# --- arguments -----------------------------------------------------------------------------------


def _flags(names: Any) -> str:
    """Options of the command line, in words."""
    return ", ".join(f"--{flag_of(name)}" for name in names)


def given_statistics(chosen: Chosen) -> Any:
    """The statistics that were given in place of items; None for items."""
    if not chosen.items[0].endswith(".nc"):
        return None
    if len(chosen.items) > 1:
        raise StatisticsError("give one file of statistics, or files of items")
    further = ("score", "no_score", "group", "by")
    of_items = (*OUTCOME_ROLES, *further, *_OTHERS, *ITEM_OPTIONS)
    if named := [name for name in of_items if getattr(chosen, name)]:
        raise StatisticsError(
            f"{_flags(named)}: statistics have no columns, leave these out or give the items"
        )
    return soc.load_statistics(chosen.items[0])


def items_of(chosen: Chosen, fitted: Fit | None = None) -> Items:
    """The items that the options describe; missing columns are those of a fit."""
    known = fitted.curves.roles if fitted else Roles()
    groups = known.groups if fitted and fitted.groups else {}
    kind = _kind_of(chosen, known)
    roles = ["score", kind.observed, kind.size]
    if getattr(chosen, "score_only", False):
        if getattr(chosen, kind.observed):
            raise StatisticsError(
                f"--score-only reads no outcomes: leave out {_flags(roles[1:2])}"
            )
        sized = getattr(chosen, kind.size) or (fitted and fitted.prior.exposure)
        roles = ["score", kind.size] if sized else ["score"]
    names = Roles(
        {role: getattr(chosen, role) or known.get(role, "") for role in roles}
    )
    if chosen.no_score:
        if chosen.score:
            raise StatisticsError(
                "--no-score: the items have no score, leave out --score"
            )
        names["score"] = NO_SCORE
    # in place of amounts
    if chosen.average:
        names[kind.observed] = Average(chosen.average)
    if missing := [role for role, name in names.items() if not name]:
        flags = _flags(missing).replace("--score", "--score (or --no-score)")
        raise StatisticsError(f"{_WHICH}: {flags}")
    names |= groups_of(chosen) or groups
    names |= {role: getattr(chosen, role) for role in _OTHERS if getattr(chosen, role)}
    source = chosen.items[0] if len(chosen.items) == 1 else chosen.items
    items = ITEMS[kind.kind]
    options = {name: getattr(chosen, name) for name in ITEM_OPTIONS}
    # 0 is a number that items refuse
    options = {
        name: x for name, x in options.items() if x is not None and x is not False
    }
    parameters = inspect.signature(items).parameters
    if wrong := [name for name in options if name not in parameters]:
        raise StatisticsError(
            f"{_flags(wrong[:1])} is not for {kind.words.items}: leave it out"
        )
    # among the names
    options.pop("average", None)
    if fitted and kind.observed in names:
        options = fitted.curves.item_options | options
    return items(source, **names.arguments, **options)


def number_or_name(word: str) -> float | str:
    """A number, or else the name of a column."""
    try:
        return float(word)
    except ValueError:
        return word


def groups_of(chosen: Chosen) -> dict[str, str]:
    """Columns of groups by role."""
    return Roles.of_groups(chosen.group or None)


def _kind_of(chosen: Chosen, known: Mapping[str, str]) -> Outcome:
    """The kind of items that the options describe, or else that of known roles."""
    all_kinds = OUTCOMES.values()
    kinds = [
        k for k in all_kinds if getattr(chosen, k.observed) or getattr(chosen, k.size)
    ]
    kinds = kinds or [kind for kind in all_kinds if kind.observed in known]
    if len(kinds) == 1:
        return kinds[0]
    pairs = [
        f"--{flag_of(kind.observed)}, --{flag_of(kind.size)}" for kind in all_kinds
    ]
    if kinds:
        words = ", or ".join(pairs).replace(", --", " and --")
        raise StatisticsError(f"items are of one kind: give {words}")
    words = ", or ".join(f"--score, {pair}" for pair in pairs)
    raise StatisticsError(f"{_WHICH}: {words}")


def check_out(chosen: Chosen) -> None:
    """Refuse an output that cannot be written or is an input, before the work starts."""
    names: list[str] = []
    for option in ("items", "statistics", "fit"):
        value = getattr(chosen, option, None) or []
        names += [value] if isinstance(value, str) else value
    paths = {os.path.realpath(path) for name in names for path in (name, *glob(name))}
    is_matched = any(will_match(name, chosen.out) for name in names)
    if is_matched or os.path.realpath(chosen.out) in paths:
        raise StatisticsError(
            f"--out {chosen.out} is a file that is read, or would be: give another name"
        )
    check_target(chosen.out)


def method_of(chosen: Chosen) -> Method:
    """The chosen method; five steps have no draws."""
    options = {name: getattr(chosen, name) for name in ("seed", "draws")}
    options = {name: value for name, value in options.items() if value is not None}
    if chosen.method == "five-steps" and options:
        raise FitError(
            f"--method five-steps does not take {_flags(options)}: leave it out"
        )
    return getattr(soc, METHODS[chosen.method])(**options)


def prior_of(
    chosen: Chosen, kind: str, grouped: bool, default: str | None = None
) -> Prior | Literal["auto"]:
    """The prior that the options describe, for a kind of items with groups or without."""
    outcome = OUTCOMES[kind]
    suited = [
        name for name, p in PRIORS.items() if FAMILIES[p.family].outcome is outcome
    ]
    name = suited[0] if chosen.prior in (None, AUTO) else chosen.prior
    if name not in suited:
        raise FitError(
            f"--prior {name} is not for {outcome.words.items}: use --prior "
            f"{' or --prior '.join(suited)}"
        )
    if not (chosen.groups or grouped):
        raise FitError("--pool-groups: these items have no groups, leave it out")
    prior = PRIORS[name]()
    curve = {field: getattr(chosen, field) for field in ("knots", "scale")}
    curve = {field: value for field, value in curve.items() if value is not None}
    made = replace(
        prior,
        mean=replace(prior.mean, **curve),
        variance=replace(prior.variance, **curve),
        exposure=Spline() if chosen.term else None,
        **{field: getattr(chosen, field) for field in _SWITCHES},
    )
    if chosen.prior == AUTO and made != prior:
        raise FitError(
            "--prior auto chooses among priors: leave out the options of one prior"
        )
    return AUTO if (chosen.prior or default) == AUTO and made == prior else made

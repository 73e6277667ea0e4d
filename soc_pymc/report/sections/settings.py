"""Settings, versions and how to make the page again."""

import datetime
import platform
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ...data.tables import kind_of
from ..markup import Html, names_and_values, table, tag
from ..material import Material, section
from ..words import number

__all__ = ["settings"]

_PACKAGES = (
    "soc_pymc", "pymc", "pytensor", "arviz", "numpy", "scipy", "pandas", "xarray", "duckdb",
    "matplotlib",
)  # fmt: skip


def settings(material: Material) -> Html:
    """The section on settings and versions."""
    fit = material.fit
    status = fit.status
    sizes = fit.data["posterior"].sizes
    facts: list[tuple[object, object]] = [
        ("Made", tag("time", _now())),
        ("Seed of this page", material.seed),
        ("Draws of the curves", f"{sizes['chain'] * sizes['draw']:,}"),
        ("Time of the fit", f"{number(status.seconds, 2)} s"),
        ("Status of the fit", status.reason),
    ]
    if status.pareto_k is not None:
        facts.append(
            ("Pareto k of the approximation", f"{number(status.pareto_k, 2)}, at most 0.7 is well")
        )
    return section(
        "settings",
        "Settings and versions",
        names_and_values(facts),
        table("Prior and method", ("Setting", "Value"), _options(material)),
        tag("h3", "How to make this page again"),
        tag("pre", tag("code", _call(material)), tabindex=0, role="region", aria_label="Code"),
        tag("p", "Options of soc.summarize beyond the number of bins are not kept in a fit."),
        table("Versions", ("Package", "Version"), _versions()),
    )


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"


def _options(material: Material) -> Iterator[tuple[object, object]]:
    for what, config in (("Prior", material.fit.prior), ("Method", material.fit.method)):
        yield f"{what}", type(config).__name__
        for name, value in asdict(config).items():
            yield f"{what}: {name.replace('_', ' ')}", _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items() if v is not None)
    return str(value)


def _versions() -> Iterator[tuple[object, object]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:  # an environment without its records
            yield name, "not known"
    yield "Python", platform.python_version()


def _call(material: Material) -> str:
    """The calls that made the fit and this page, as far as the fit knows them."""
    items, fit = material.items, material.fit
    source = repr(items.source) if kind_of(items.source) == "files" else "table"
    roles = ", ".join(f"{role}={column!r}" for role, column in items.roles.items())
    joint = "Mixture" in type(fit.prior).__name__ or fit.prior.exposure is not None
    bins = fit.data["constant_data"].sizes["bin"]
    call = {k: v for k, v in material.call.items() if v not in (None, (), 0) or k == "threshold"}
    if call["threshold"] is None:
        del call["threshold"]
    options = "".join(f", {name}={value!r}" for name, value in call.items())
    return (
        "import soc_pymc as soc\n\n"
        f"items = soc.{type(items).__name__}({source}, {roles})\n"
        f"stats = soc.summarize(items{', joint=True' if joint else ''})  # {bins:,} bins\n"
        f"fit = soc.fit(stats, {_made(fit.prior)}, {_made(fit.method)})\n"
        f"soc.report(fit, items{options})\n"
    )


def _made(config: Any) -> str:
    """How a configuration is written: what differs from its defaults."""
    plain = type(config)()
    own = {
        name: getattr(config, name)
        for name in config.__dataclass_fields__
        if getattr(config, name) != getattr(plain, name)
    }
    words = ", ".join(
        f"{name}={_made(value) if hasattr(value, '__dataclass_fields__') else repr(value)}"
        for name, value in own.items()
    )
    return f"soc.{type(config).__name__}({words})"

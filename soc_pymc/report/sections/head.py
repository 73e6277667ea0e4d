"""The head of the page: what it is, and what to make of it in two boxes."""

from collections.abc import Iterator

from ..markup import Html, tag
from ..material import Material
from ..words import counted, exact

__all__ = ["head", "title_of", "verdicts"]

_MARKS = {"ok": "✓", "look": "!", "fail": "✗"}


def title_of(material: Material, title: str | None) -> str:
    """The user's title, or one made from the columns."""
    if title is not None:
        return title
    roles, law = material.roles, material.law
    return f"Calibration of {roles['score']} against {roles[law.outcome.observed]}"


def verdicts(material: Material) -> list[tuple[str, str, str, str]]:
    """What is judged, how (ok, look or fail), in a word, and why, first of the fit itself."""
    status, table = material.fit.status, material.result.table
    fit = ("ok", "Converged") if status.converged else ("fail", "Not converged")
    tests = table[table["slice"] != "inference"]
    n = len(tests)
    failed, looks = (int((tests["verdict"] == v).sum()) for v in ("fail", "look"))
    if failed:
        found = ("fail", f"{failed} of {counted(n, 'test')} failed")
    elif looks:
        found = ("look", f"Passed, {looks} of {counted(n, 'test')} to look at")
    else:
        found = ("ok", f"All {counted(n, 'test')} passed")
    return [
        ("The fit", *fit, _sentence(status.reason)),
        ("The checks", *found, _reading(found[0], bool(failed))),
    ]


def _reading(verdict: str, failed: bool) -> str:
    if failed:
        return (
            "The model does not describe these outcomes in every respect. The section on checks "
            "says where, by how much, and what to try."
        )
    if verdict == "look":
        return (
            "No test fails once their number is allowed for; a few are unusual taken alone, "
            "as chance makes some."
        )
    return "Outcomes look like those that the model makes, overall and in every slice tested."


def _sentence(text: str) -> str:
    """Text with a capital and a full stop."""
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def head(material: Material, title: str | None) -> Html:
    """Title, what the page is, and the verdicts."""
    boxes = [
        tag(
            "div",
            tag("p", what, class_="what"),
            tag("p", tag("span", _MARKS[kind], class_="mark", aria_hidden="true"), " ", word,
                class_="word"),
            tag("p", why),
            class_=f"verdict {kind}",
        )
        for what, kind, word, why in verdicts(material)
    ]  # fmt: skip
    return tag(
        "header",
        tag("p", "Second order calibration", class_="eyebrow"),
        tag("h1", tag("bdi", title_of(material, title))),
        tag("p", *_what(material), class_="lead"),
        tag("div", *boxes, class_="verdicts"),
        tag("h2", "In short", class_="lesser"),
        tag("ul", *(tag("li", sentence) for sentence in _in_short(material)), class_="short"),
    )


def _in_short(material: Material) -> Iterator[str]:
    """What there is to take home."""
    if not material.fit.status.converged:
        yield "The fit did not converge: none of the numbers below is to be relied on."
    yield from (m.sentence(interval=not material.fit.one_draw) for m in material.measures)
    for p, k in sorted(material.above.items()):
        if p > 0.5:
            yield (
                f"{counted(k, 'item lies', 'items lie')} above {exact(material.threshold or 0.0)} "
                f"with a probability of more than {p:.0%}."
            )


def _what(material: Material) -> tuple[object, ...]:
    """The page in two sentences."""
    n = counted(material.glance.n, "item")
    intervals = "" if material.fit.one_draw else ", with 90% intervals throughout"
    if material.law.outcome.whole:
        seen = (
            "a number of events in a known exposure, which is its true rate theta seen with noise"
        )
    else:
        seen = "a value, which is its true theta seen with noise of known size"
    return (
        f"Each of {n} has a score t, which some model made, and an outcome: {seen}. This page says "
        "what theta is given the score, how far theta still varies among items of equal scores, "
        f"and what the score and the item's own outcome together say of each item{intervals}.",
    )

"""Draw the layers of soc_pymc from its imports: ``python docs/dev/packages.py`` writes a picture.

Boxes are the packages in the order of the layers contract in pyproject.toml, the ground at the
bottom; an arc goes from a package to each one that it imports, wide where many names are imported.
"""

import ast
import tomllib
from collections import Counter
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import Arc, FancyBboxPatch

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "soc_pymc"


def layers():
    """Packages from the ground up; those of one layer stand beside each other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    return [[name.strip() for name in row.split("|")] for row in reversed(found)][:-1]


def imports():
    """Number of names that each package imports from each other one."""
    found = Counter()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).parts
        if path.stem.startswith("__") and len(place) == 1:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            up = node.level if isinstance(node, ast.ImportFrom) else 0
            if up == len(place) and node.module:
                found[place[0].removesuffix(".py"), node.module.split(".")[0]] += len(node.names)
    return found


def caption(name):
    """The first paragraph of the docstring of a package or module."""
    path = PACKAGE / name / "__init__.py"
    path = path if path.exists() else PACKAGE / f"{name}.py"
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("`", "")


def draw(path):
    """Write the picture."""
    mpl.rcParams["svg.hashsalt"] = "packages"  # the same file each time
    rows, names = layers(), imports()
    figure, ax = plt.subplots(figsize=(8.6, 0.62 * len(rows) + 0.3), layout="constrained")
    middle = {}
    for height, row in enumerate(rows):
        width = 5.6 / len(row)
        for place, name in enumerate(row):
            left = place * width
            box = FancyBboxPatch(
                (left + 0.05, height + 0.14),
                width - 0.1,
                0.72,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor="#eef3f8",
                edgecolor="#34495e",
            )
            ax.add_patch(box)
            ax.text(
                left + 0.15,
                height + 0.66,
                name,
                weight="bold",
                va="center",
                fontsize=9 - len(row) // 3,
            )
            words = caption(name)
            limit = 100 // len(row)
            words = words if len(words) <= limit else words[: limit - 1].rsplit(" ", 1)[0] + " ..."
            ax.text(left + 0.15, height + 0.36, words, va="center", fontsize=6.5, color="#34495e")
            middle[name] = height + 0.5
    for (one, other), number in sorted(names.items()):
        if one == other or middle.get(one, 0) <= middle.get(other, 0):
            continue
        high, low = middle[one] - 0.08, middle[other] + 0.08
        arc = Arc(
            (5.6, (high + low) / 2),
            0.5 * (high - low),
            high - low,
            theta1=-90,
            theta2=90,
            color="#c0622b",
            linewidth=0.4 + 0.12 * number**0.5,
            alpha=0.55,
        )
        ax.add_patch(arc)
        ax.annotate(
            "",
            (5.58, low),
            (5.66, low + 1e-3),
            arrowprops={"arrowstyle": "-|>", "color": "#c0622b", "lw": 0},
        )
    ax.set(xlim=(0, 8.6), ylim=(0, len(rows)))
    ax.axis("off")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).parent / "packages.svg")

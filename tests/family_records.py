"""Records of families for the conformance tests: the documentation's own."""

from pathlib import Path


def documented() -> dict[str, object]:
    """Names that the code of docs/dev/own-family.md makes when it runs."""
    text = (Path(__file__).parents[1] / "docs" / "dev" / "own-family.md").read_text()
    names: dict[str, object] = {}
    for block in text.split("```python\n")[1:]:
        exec(compile(block.split("```")[0], "docs/dev/own-family.md", "exec"), names)
    return names

"""The scripts of `docs/examples` are short, run without a warning and end in a picture or page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import soc_pymc as soc

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
SCRIPTS = {
    "clicks_in_polars.py": ["clicks.png"],
    "claims_by_command.sh": ["page.html", "kept/curves.png", "new_posteriors.parquet"],
    "experiments.py": ["level.png", "curve.png"],
    "labels_in_sklearn.py": ["labels.png"],
    "own_term_in_pymc.py": ["pava.png"],
}
MOST_LINES = 16  # without those that are blank, with the docstring


def test_scripts_are_short():
    assert {path.name for path in FOLDER.iterdir()} == SCRIPTS.keys()
    for name in SCRIPTS:
        lines = [line for line in (FOLDER / name).read_text().splitlines() if line.strip()]
        assert len(lines) <= MOST_LINES, name


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_run_without_a_warning(name, tmp_path):
    script = FOLDER / name
    words = [sys.executable, str(script)]
    if script.suffix == ".sh":
        python = f"python() {{ '{sys.executable}' \"$@\"; }}"
        command = f"{python}; soc-pymc() {{ python -m soc_pymc \"$@\"; }}; . '{script}'"
        words = ["bash", "-ec", command]
    root = str(Path(soc.__file__).parents[1])
    environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": root}
    run = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "arning" not in run.stderr
    for file in SCRIPTS[name]:
        assert (tmp_path / file).stat().st_size > 1000

"""Run a study by its name: `python -m tests.studies NAME`, with the study's own options."""

import importlib
import sys

name = sys.argv.pop(1)
importlib.import_module(f"tests.studies.{name}").main()

"""`python -m soc_pymc`: the command line."""

import sys

from .front.cli import main

if __name__ == "__main__":
    sys.exit(main())

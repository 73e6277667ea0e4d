"""`python -m soc_pymc.cli`."""

import sys

from ._main import main

sys.exit(main())

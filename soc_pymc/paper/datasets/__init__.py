"""Data sets for examples: small published tables, and real ones where they are found.

Real files are not part of the package. Each function looks for its file in the folder that the
environment variable ``SOC_PYMC_DATA`` names, then in `cache_folder`, and else simulates a stand-in
of the same columns and of like size and shape. ``frame.attrs["source"]`` says in a sentence what
the table is, ``frame.attrs["simulated"]`` whether it is a stand-in.

>>> import soc_pymc as soc
>>> soc.datasets.batters().attrs["source"]
'Batting averages of 18 players in 1970, real: Efron and Morris (1975), Table 1.'
"""

from ._batters import batters
from ._lookup import cache_folder
from ._tables import batting, keywords, motor_policies, neighbourhoods

__all__ = ["batters", "batting", "cache_folder", "keywords", "motor_policies", "neighbourhoods"]


def __dir__() -> list[str]:
    return sorted(__all__)

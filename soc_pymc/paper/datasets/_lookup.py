"""Where the files of real data sets are looked for, and how they are read."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ..._lib.arguments import whole
from ..._lib.errors import ItemsError

__all__ = ["Dataset", "cache_folder"]

_log = logging.getLogger(__name__)

VARIABLE = "SOC_PYMC_DATA"


def cache_folder() -> Path:
    r"""Folder of the user's cache in which data files are looked for; it need not exist.

    Returns
    -------
    pathlib.Path
        ``$XDG_CACHE_HOME/soc_pymc`` (by default ``~/.cache/soc_pymc``) on Linux,
        ``~/Library/Caches/soc_pymc`` on macOS, ``%LOCALAPPDATA%\soc_pymc\Cache`` on Windows.

    Examples
    --------
    >>> "soc_pymc" in cache_folder().parts
    True
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "soc_pymc" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "soc_pymc"
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "soc_pymc"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set that is read where its file is found, and simulated where it is not.

    Attributes
    ----------
    file
        Name of the file, Parquet or CSV.
    columns
        The columns of the table and their types, the same for both.
    title
        What the rows are, to begin the sentence on the source.
    published
        Where the real data come from, with the licence stated there.
    tidy
        Makes the table's columns from those of the file.
    simulate
        Makes a stand-in.
    """

    file: str
    columns: Mapping[str, str]
    title: str
    published: str
    tidy: Callable[[pd.DataFrame], pd.DataFrame]
    simulate: Callable[[np.random.Generator], pd.DataFrame]

    def load(self, seed: int) -> pd.DataFrame:
        """The real table if its file is found, else a stand-in from a seed."""
        whole(seed, "seed", 0)
        path = _find(self.file)
        if path is None:
            frame = self._typed(self.simulate(np.random.default_rng(seed)))
            source = (
                f"{self.title}, a simulated stand-in of {len(frame):,} rows: no {self.file} in "
                f"${VARIABLE} or the user's cache."
            )
            _log.info(source)
        else:
            frame = self._read(path)
            source = f"{self.title}, real: {self.published}."
        frame.attrs = {"source": source, "simulated": path is None}
        return frame

    def _read(self, path: Path) -> pd.DataFrame:
        reader = pd.read_parquet if path.suffix == ".parquet" else pd.read_csv
        try:
            return self._typed(self.tidy(reader(path)))
        except Exception as error:  # whatever a damaged file makes the reader raise
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise ItemsError(
                f"{path} does not hold {self.title} ({why}): put the right file in its place, or "
                "take it away for a simulated stand-in"
            ) from error

    def _typed(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[list(self.columns)].astype(dict(self.columns)).reset_index(drop=True)


def _find(file: str) -> Path | None:
    """The file in the folder of the environment variable, or in the cache."""
    named = os.environ.get(VARIABLE)
    folders = [Path(named)] if named else []
    for folder in (*folders, cache_folder()):
        if (folder / file).is_file():
            return folder / file
    return None

"""Items some at a time, and fits with fewer draws."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .._lib.arrays import Floats, Ints
from .._lib.progress import phase
from ..inference.results import Fit
from ..posterior.curves import with_posterior
from ..posterior.interface import Columns, select


def parts(
    title: str, n: int, step: int, progress: bool | None, unit: str = "items"
) -> Iterator[slice]:
    """Slices of `step` that make up n, with progress."""
    with phase(title, total=n, unit=unit, enabled=progress) as running:
        for start in range(0, n, step):
            stop = min(start + step, n)
            yield slice(start, stop)
            running.advance(stop - start)


def in_batches(
    title: str,
    columns: Columns,
    step: int,
    progress: bool | None,
    values: Callable[[Columns], Sequence[Floats] | Floats],
) -> Floats:
    """Values of all items, (values, n), `step` items at a time, with progress."""
    batches = parts(title, len(columns["score"]), step, progress)
    return np.concatenate([np.asarray(values(select(columns, rows))) for rows in batches], axis=1)


def even_draws(fit: Fit, most: int) -> Ints:
    """Indices of at most `most` draws, evenly spaced in every chain, chains one after the other."""
    chains, draws = (fit.data["posterior"].sizes[dim] for dim in ("chain", "draw"))
    number = min(max(1, most // chains), draws)
    draw = np.arange(number) * draws // number
    return np.asarray((np.arange(chains)[:, None] * draws + draw).ravel())


def thin(fit: Fit, most: int) -> Fit:
    """The fit with its `even_draws`."""
    posterior, draws = fit.data["posterior"].to_dataset(), even_draws(fit, most)
    if len(draws) == posterior.sizes["chain"] * posterior.sizes["draw"]:
        return fit
    return with_posterior(fit, posterior.isel(draw=draws[: len(draws) // posterior.sizes["chain"]]))

"""Statistics with clusters: every table by block, additive, the same in all sources."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from soc_pymc.data.binning import BLOCKS, Levels, block_of_labels
from soc_pymc.data.stored_statistics import read_tables
from tests.tables import KINDS, ROLES
from tests.data.test_engines import assert_identical


def items_of(frame, kind="counts", **more):
    make, roles = KINDS[kind]
    return make(frame, **roles, **more)


def table_of(n=3000, clusters=40, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.integers(2, 30, n)
    return pd.DataFrame(
        {
            "t": rng.uniform(0.1, 0.9, n),
            "N": size,
            "y": rng.binomial(size, rng.beta(1.0, 3.0, n)),
            "v": rng.normal(size=n),
            "s": rng.choice([0.5, 1.0], n),
            "c": [f"campaign {k}" for k in rng.integers(0, clusters, n)],
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_of_parts_add_up_to_those_of_the_whole(kind):
    frame = table_of()
    whole = soc.summarize(items_of(frame, kind), bins=10, cluster="c", progress=False)
    options = {"edges": whole.edges, "progress": False}
    parts = (frame[:700], frame[700:])
    added = sum(soc.summarize(items_of(part, kind, cluster="c"), **options) for part in parts)
    assert_identical(whole, added)
    # nothing else changes: without blocks these are the statistics without clusters
    plain = soc.summarize(items_of(frame, kind), **options)
    for name in whole._outcome.margins:
        one, other = whole.cells(name), plain.cells(name)
        for column in one:
            np.testing.assert_allclose(one[column], other[column], rtol=1e-12, atol=1e-12)


def test_a_fold_holds_whole_clusters():
    frame = table_of()
    stats = soc.summarize(items_of(frame), bins=10, cluster="c", folds=7, progress=False)
    block = block_of_labels(frame["c"])
    assert stats.blocks == len(np.unique(block))
    for fold in range(7):
        assert stats.of_fold(fold).n_items == (block % 7 == fold).sum()
        assert stats.of_fold(fold).n_items + stats.without_fold(fold).n_items == len(frame)
    assert soc.summarize(items_of(frame), cluster="c", folds=0, progress=False).folds == 0


def test_whole_numbers_text_and_categories_are_the_same_clusters(tmp_path):
    frame = table_of().assign(c=lambda d: d["c"].str.removeprefix("campaign ").astype(int))
    found = [
        soc.summarize(items_of(source), bins=10, cluster="c", progress=False)
        for source in (frame, frame.astype({"c": str}), frame.astype({"c": "category"}))
    ]
    frame.to_parquet(tmp_path / "items.parquet")
    found.append(
        soc.summarize(
            soc.PoissonItems(str(tmp_path / "items.parquet"), **ROLES, cluster="c"),
            bins=10,
            progress=False,
        )
    )
    for other in found[1:]:
        assert_identical(found[0], other)


def test_saved_statistics_with_clusters_come_back(tmp_path):
    stats = soc.summarize(items_of(table_of()), bins=10, cluster="c", progress=False)
    stats.save(tmp_path / "stats.nc")
    again = soc.load_statistics(tmp_path / "stats.nc")
    assert again.data.equals(stats.data)
    assert again.blocks == stats.blocks > 1
    damaged = stats.data.copy(deep=True)
    damaged["part_fold"][0] = BLOCKS
    words = ("format", "kind", "roles", "cells", "folds_by")
    with pytest.raises(ValueError, match="part_fold is out of range"):
        read_tables(damaged, words)
    with pytest.raises(ValueError, match="folds are by none"):
        read_tables(stats.data.assign_attrs(folds_by="none"), words)


def test_statistics_with_and_without_clusters_cannot_be_added():
    one = soc.summarize(items_of(table_of()), bins=10, cluster="c", progress=False)
    other = soc.summarize(items_of(table_of()), edges=one.edges, progress=False)
    with pytest.raises(soc.StatisticsError, match="different roles"):
        one + other


def test_blocks_are_about_equally_likely():
    # 20,000 labels in 240 blocks: chi square of 239 degrees of freedom, sd 21.9
    counts = np.bincount(block_of_labels([f"ad {k}" for k in range(20_000)]), minlength=BLOCKS)
    expected = 20_000 / BLOCKS
    assert abs(((counts - expected) ** 2 / expected).sum() - 239) < 4 * 21.9


def test_sizes_of_many_clusters_are_estimated_in_bounded_memory():
    levels = Levels()
    for start in range(0, 400_000, 100_000):
        labels = [f"user {k}" for k in range(start, start + 100_000)]
        levels.add(labels, np.full(100_000, 1 + start // 100_000))
    assert len(levels._hash) <= 1 << 17
    # a share of at least 1/8 of 400,000 clusters of 1 to 4 items: sd below 1.12 / sqrt(50,000)
    assert abs(levels.mean_size - 2.5) < 4 * 1.12 / np.sqrt(50_000)

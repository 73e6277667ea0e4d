"""Statistics with clusters: every table by block, additive, the same in all sources."""

import numpy as np
import pandas as pd
import pytest

import soc_pymc as soc
from tests.data.cell_references import assert_same, block_of_cluster
from tests.tables import KINDS


def items_of(frame, kind="counts", cluster="c"):
    make, roles = KINDS[kind]
    return make(frame, **roles, cluster=cluster)


def table_of(n=3000, clusters=40, seed=0):
    """Returns items of campaigns, with counts, values and successes."""
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
    stats = soc.summarize(items_of(frame, kind), bins=10, progress=False)
    options = {"edges": stats.edges, "progress": False}
    parts = (frame[:700], frame[700:])
    added = sum(soc.summarize(items_of(part, kind), **options) for part in parts)
    assert_same(stats, added)
    # nothing else changes: without blocks these are the statistics without clusters
    plain = soc.summarize(items_of(frame, kind, None), **options)
    for name in stats.data:
        if stats.data[name].dims == ("bin",):
            np.testing.assert_allclose(stats.data[name], plain.data[name], rtol=1e-12, atol=1e-11)
    with pytest.raises(soc.StatisticsError, match="roles"):
        _ = stats + plain


def test_a_fold_holds_whole_clusters():
    frame = table_of()
    stats = soc.summarize(items_of(frame), bins=10, folds=7, progress=False)
    block = block_of_cluster(frame["c"])
    assert stats.blocks == len(np.unique(block))
    for fold in range(7):
        assert stats.of_fold(fold).n_items == (block % 7 == fold).sum()
        assert stats.of_fold(fold).n_items + stats.without_fold(fold).n_items == len(frame)
    assert soc.summarize(items_of(frame), folds=0, progress=False).folds == 0


def test_whole_numbers_text_and_categories_are_the_same_clusters(tmp_path):
    frame = table_of().assign(c=lambda table: table["c"].str.removeprefix("campaign ").astype(int))
    frame.to_parquet(tmp_path / "items.parquet")
    typed = [frame.astype({"c": kind}) for kind in (str, "category")]
    options = {"bins": 10, "progress": False}
    stats = soc.summarize(items_of(frame), **options)
    for source in (*typed, tmp_path / "items.parquet"):
        assert_same(stats, soc.summarize(items_of(source), **options))

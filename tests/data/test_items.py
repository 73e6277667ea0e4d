"""Items: what is named when they are made, and every kind of source and of file."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import soc_pymc as soc
from tests.tables import BACKENDS, KINDS, ROLES, source_of

QUIET = {"on_leakage": "ignore", "progress": False}


def totals(source, **roles):
    """Returns the numbers of items, counts and exposures of a source."""
    items = soc.PoissonItems(source, **(ROLES | roles))
    stats = soc.summarize(items, edges=[0.25], **QUIET)
    return stats.n_items, int(stats.data["sum_y"].sum()), float(stats.data["sum_N"].sum())


@pytest.mark.parametrize("kind", KINDS)
def test_construction_reads_nothing_and_knows_its_roles(kind):
    make, roles = KINDS[kind]
    items = make("not there.parquet", **roles, group="g", id="i")
    assert dict(items.roles) == roles | {"group": "g", "id": "i"}
    assert "not there.parquet" in repr(items)
    with pytest.raises(AttributeError):
        items.score = "other"
    with pytest.raises(soc.ItemsError, match="'t'"):
        make("not there.parquet", **(roles | {"group": "t"}))


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_of_yes_and_no_are_successes(backend, tmp_path):
    numbers = pa.table({"t": [0.1, 0.2, 0.3, 0.4], "y": [0, 1, 1, 0], "N": [1] * 4})
    labels = numbers.set_column(1, "y", numbers["y"].cast(pa.bool_()))
    make, roles = KINDS["successes"]
    found, expected = (
        soc.summarize(make(source, **roles), edges=[0.25], **QUIET)
        for source in (source_of(backend, labels, tmp_path), numbers)
    )
    assert found.data.equals(expected.data)


def write(path, t, **columns):
    columns = {"t": t, "y": [1] * len(t), "N": [2.0] * len(t)} | columns
    pq.write_table(pa.table(columns), path)


def test_globs_and_names_with_their_characters(tmp_path, small_fit):
    """Files of a glob are read in sorted order; an existing file is not taken for a pattern."""
    rng = np.random.default_rng(1)
    scores = {name: rng.uniform(0.01, 0.3, 300) for name in ("b", "a", "c[1]*")}
    for name, values in scores.items():
        write(tmp_path / f"{name}.parquet", values)
    items = soc.PoissonItems(f"{tmp_path}/*.parquet", **ROLES)
    scored = soc.item_posteriors(small_fit, items, progress=False)
    expected = np.concatenate([scores[name] for name in sorted(scores)])
    np.testing.assert_array_equal(scored.column("t"), expected)
    assert totals(tmp_path / "c[1]*.parquet") == (300, 300, 600.0)


def test_a_damaged_page_is_an_items_error(tmp_path):
    path = tmp_path / "page.parquet"
    write(path, np.random.default_rng(0).uniform(size=5000))
    content = bytearray(path.read_bytes())
    content[4:900] = b"\xff" * 896
    path.write_bytes(bytes(content))
    with pytest.raises(soc.ItemsError):
        totals(path)

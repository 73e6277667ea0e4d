"""Few bins and many, on simulation S1 (or on the items of a file, not kept here).

Run: python -m tests.studies.bin_choice [items] [most bins]
"""

import sys

import soc_pymc as soc


def main() -> None:
    """Print the table of `soc.evaluate.compare_bins`."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
    frame = soc.simulation.s1(n, seed=0)
    items = soc.PoissonItems(frame, score="score", count="count", exposure="exposure")
    bins = [b for b in (5, 10, 30, 100, 300, 1000, 3000) if b <= most]
    table = soc.evaluate.compare_bins(items, bins)
    print(table.round(4).T.to_string())


if __name__ == "__main__":
    main()

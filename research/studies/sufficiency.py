"""Sufficiency frontiers, which the paper leaves out, on data where sufficiency is violated.

    python research/run.py sufficiency [--quick] [--fresh] [--jobs N]

Two of them. "lsac-blind" is found: the same law students with race left out of the features, as
blind scoring would have it; their grades then differ by race at a given score.
"communities-noisy" is constructed: Communities and Crime without the racial shares, and noise of
one standard deviation on every feature of the "black" communities, as when one group is measured
less well. Writes results/sufficiency.csv, .json and sufficiency_<data>.png.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common import read_arguments
from studies.frontier import draw, points, write_points
from studies.methods import PAPER, SUFFICIENCY

DATASETS = {
    "lsac-blind": "LSAC without race among the features (found)",
    "communities-noisy": 'Communities, noisy features of "black" communities (constructed)',
}
FLOOR = {"lsac-blind": 0.05, "communities-noisy": 0.3}


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    methods = SUFFICIENCY[2:3] if setting.quick else [*SUFFICIENCY, PAPER[4]]
    rows: list[dict[str, Any]] = []
    for dataset, title in DATASETS.items():
        found = points(setting, dataset, methods, criteria=())
        rows += found
        draw(setting, f"sufficiency_{dataset}", found, methods,
             f"{title}, 5-fold held out", ("sufficiency",), FLOOR[dataset],
             reach=3.0)  # fmt: skip
    write_points(setting, "sufficiency", rows)


if __name__ == "__main__":
    main()

"""The paper's frontier on 5,000 law students (LSAC): LSPC and the convex penalties.

    python research/run.py frontier_lsac [--quick] [--fresh] [--jobs N]

Writes results/frontier_lsac.csv, .json and .png.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import read_arguments
from studies.frontier import draw, points, write_points
from studies.methods import PAPER, QUICK


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    rows = points(setting, "lsac", QUICK[:1] if setting.quick else PAPER)
    write_points(setting, "frontier_lsac", rows)
    draw(setting, "frontier_lsac", rows, PAPER,
         "LSAC, 5,000 rows, 5-fold held out: the paper's methods")  # fmt: skip


if __name__ == "__main__":
    main()

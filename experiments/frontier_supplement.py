"""Both frontiers again: a logistic classifier inside, this package's fitters, and other methods.

    python experiments/frontier_supplement.py [--quick] [--fresh] [--jobs N]

The paper's supplement (LSPC against a nested logistic regression), then what it could not have:
our default, group features, and the methods that people would pick instead. Writes, for both data
sets, results/supplement_<data>.csv and .json, supplement_<data>.png (the paper's comparison and
ours), others_<data>.png (other methods that do not need the attribute to predict) and
attribute_<data>.png (those that do).
"""

from __future__ import annotations

from collections.abc import Sequence

from common import read_arguments
from frontier import draw, points, write_points
from methods import (
    ATTRIBUTE,
    BLIND,
    CUBIC,
    METHODS,
    NEEDING,
    NESTED,
    OURS,
    PAPER,
    PEERS,
    POSTPROCESSED,
    QUICK,
    TRANSPORT,
    available,
)

NAMES = {"communities": "Communities and Crime", "lsac": "LSAC, 5,000 rows"}
# The lowest R² drawn; methods that know the attribute have less to lose.
FLOOR = {"communities": 0.2, "lsac": 0.1}
NEEDING_FLOOR = {"communities": 0.35, "lsac": 0.12}


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    added = available([*OURS, *CUBIC, *NEEDING, *TRANSPORT, *POSTPROCESSED, *PEERS, *NESTED])
    paper = PAPER
    if setting.quick:
        added, paper = QUICK[1:], QUICK[:1]
    for dataset, name in list(NAMES.items())[: 1 if setting.quick else 2]:
        rows = points(setting, dataset, added)
        write_points(setting, f"supplement_{dataset}", rows)
        rows += points(setting, dataset, paper)
        floor = FLOOR[dataset]
        inside = [METHODS[n] for n in ("LSPC-ind-quad", "LSPC-sep-quad", "CVX-group")]
        draw(
            setting,
            f"supplement_{dataset}",
            rows,
            [*inside, *NESTED, *OURS],
            f"{name}, 5-fold held out: logistic inside, and group features",
            floor=floor,
        )
        others = [
            m for m in [*OURS[2:], *CUBIC, *TRANSPORT, *POSTPROCESSED, *PEERS] if m.league == BLIND
        ]
        draw(
            setting,
            f"others_{dataset}",
            rows,
            others,
            f"{name}, 5-fold held out: other methods, attribute not needed",
            floor=floor,
        )
        needing = [
            m for m in [*NEEDING, *CUBIC, *TRANSPORT, *POSTPROCESSED] if m.league == ATTRIBUTE
        ]
        draw(setting, f"attribute_{dataset}", rows, needing,
             f"{name}, 5-fold held out: methods that need the attribute to predict",
             floor=NEEDING_FLOOR[dataset])  # fmt: skip


if __name__ == "__main__":
    main()

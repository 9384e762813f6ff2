"""Both frontiers again: a logistic classifier inside, this package's fitters, and other methods.

    python research/run.py frontier_supplement [--quick] [--fresh] [--jobs N]

The paper's supplement (LSPC against a nested logistic regression), then what it could not have:
our default, group features, and the methods that people would pick instead. Rivals are also run at
other settings of their own; of each the setting of the highest R² over all bounds is drawn. Writes,
for both data sets, results/supplement_<data>.csv and .json, supplement_<data>.png (the paper's
comparison and ours), others_<data>.png (other methods that do not need the attribute to predict)
and attribute_<data>.png (those that do).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from common import read_arguments
from studies.frontier import THRESHOLDS, crossing, draw, points, write_points
from studies.methods import (
    ATTRIBUTE,
    BEST,
    BLIND,
    CUBIC,
    FAMILIES,
    METHODS,
    NEEDING,
    NESTED,
    OURS,
    PAPER,
    PEERS,
    POSTPROCESSED,
    QUICK,
    RAW,
    TRANSPORT,
    TUNED,
    Method,
    available,
)

PAPER_QUAD = ("LSPC-ind-quad", "LSPC-sep-quad")
NAMES = {"communities": "Communities and Crime", "lsac": "LSAC, 5,000 rows"}
# The lowest R² drawn; methods that know the attribute have less to lose.
FLOOR = {"communities": 0.2, "lsac": 0.1}
NEEDING_FLOOR = {"communities": 0.35, "lsac": 0.12}


def at_best(rows: list[dict[str, Any]], method: Method) -> Method:
    """The setting of a method whose R² under all bounds by auto is highest on average.

    A bound that is not met counts as an R² of zero.
    """

    def total(name: str) -> float:
        mine = [r for r in rows if r["method"] == name]
        return sum(
            max(crossing(mine, f"{criterion}_auto", threshold) or 0.0, 0.0)
            for criterion in ("separation", "independence")
            for threshold in THRESHOLDS
        )

    names = FAMILIES.get(method.name + BEST, FAMILIES[method.name])
    return METHODS[max(names, key=total)]


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    added = available(
        [*OURS, *CUBIC, *NEEDING, *TRANSPORT, *POSTPROCESSED, *PEERS, *RAW, *TUNED, *NESTED]
    )
    paper = PAPER
    if setting.quick:
        added, paper = QUICK[1:], QUICK[:1]
    for dataset, name in list(NAMES.items())[: 1 if setting.quick else 2]:
        rows = points(setting, dataset, added)
        write_points(setting, f"supplement_{dataset}", rows)
        rows += points(setting, dataset, paper)
        floor = FLOOR[dataset]
        inside = [METHODS[n] for n in PAPER_QUAD]
        best = [replace(at_best(rows, m), dash=":", marker="d") for m in inside]
        best.append(at_best(rows, METHODS["CVX-group"]))
        draw(
            setting,
            f"supplement_{dataset}",
            rows,
            [*inside, *(m for m in best if m.name not in PAPER_QUAD), *NESTED, *OURS],
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
            [at_best(rows, m) for m in others],
            f"{name}, 5-fold held out: other methods, attribute not needed",
            floor=floor,
        )
        needing = [
            m for m in [*NEEDING, *CUBIC, *TRANSPORT, *POSTPROCESSED] if m.league == ATTRIBUTE
        ]
        draw(setting, f"attribute_{dataset}", rows, [at_best(rows, m) for m in needing],
             f"{name}, 5-fold held out: methods that need the attribute to predict",
             floor=NEEDING_FLOOR[dataset])  # fmt: skip


if __name__ == "__main__":
    main()

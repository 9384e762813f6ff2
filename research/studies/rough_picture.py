"""Estimate against number of rows for each rough family, from results/rough.csv.

python research/run.py rough_picture [--criterion separation] [--out docs/rough.png]
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from common import RESULTS
from distributions import ROUGH_FAMILIES

STYLES = {
    "auto": ("#1b6ca8", "o", "auto"),
    "knn": ("#d1713f", "s", "knn"),
    "fourier": ("#5a9a57", "^", "fourier"),
}
COLUMNS = 6


def read(criterion: str) -> dict[str, dict[str, list[dict[str, str]]]]:
    """Rows by panel and estimator, ascending in n.

    Sufficiency stands in for the criterion where that is next to nothing in truth.
    """
    with (RESULTS / "rough.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["estimator"] in STYLES]
    rows.sort(key=lambda row: int(row["n"]))
    truths = {(row["family"], row["criterion"]): float(row["truth"]) for row in rows}
    panels: dict[str, dict[str, list[dict[str, str]]]] = {}
    for family in (name for name in ROUGH_FAMILIES if (name, criterion) in truths):
        shown = criterion if truths[family, criterion] > 0.001 else "sufficiency"
        title = family.replace("_", " ") + (f" ({shown})" if shown != criterion else "")
        panel = panels.setdefault(title, defaultdict(list))
        for row in rows:
            if row["family"] == family and row["criterion"] == shown:
                panel[row["estimator"]].append(row)
    return panels


def draw(criterion: str, out: Path) -> None:
    panels = read(criterion)
    rows = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(
        rows, COLUMNS, figsize=(2.0 * COLUMNS, 1.7 * rows + 0.6), sharex=True, squeeze=False
    )
    for axis, (title, found) in zip(axes.flat, panels.items(), strict=False):
        truth = float(next(iter(found.values()))[0]["truth"])
        axis.axhline(truth, color="black", linewidth=1.0, label="truth")
        for estimator, (color, marker, label) in STYLES.items():
            points = found.get(estimator, [])
            if not points:
                continue
            n = [int(row["n"]) for row in points]
            mean = [float(row["mean"]) for row in points]
            # The middle 95 % of single estimates.
            reach = [1.96 * float(row["spread"] or 0) for row in points]
            axis.errorbar(
                n, mean, reach, color=color, marker=marker, markersize=3, linewidth=1.2,
                elinewidth=0.8, capsize=1.5, label=label,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.set_xlim(1e3, 2e6)
        axis.set_xticks([1e3, 1e4, 1e5, 1e6])
        axis.minorticks_off()
        axis.set_title(title, fontsize=8, pad=3)
        top = max(1.25 * truth, 0.06)
        axis.set_ylim(-0.08 * top, top)
        axis.tick_params(labelsize=6, labelbottom=True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    labels: dict[str, object] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, handle)
    figure.legend(
        labels.values(), labels.keys(), loc="lower right", ncols=4, fontsize=8, frameon=False
    )
    figure.suptitle(
        f"Normalized {criterion} against number of rows: mean of the estimates, bars hold 95 % of "
        "them (values beyond a frame are cut off)",
        fontsize=9,
    )
    figure.tight_layout(rect=(0, 0.02, 1, 0.99))
    figure.savefig(out, dpi=100)
    plt.close(figure)
    print(out, out.stat().st_size, "bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--criterion", default="separation")
    default = Path(__file__).parents[2] / "docs" / "rough.png"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    draw(options.criterion, options.out)


if __name__ == "__main__":
    main()

"""Cells → an Audit, without rows: estimates and tests on rows made of cells, tables on exact sums.

R², means, spreads, root mean squared errors and calibration slopes of groups are those of all
people, from their sums. Measures, tests, mean absolute errors and distances of distributions see
each person somewhere within its cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from ..data.controls import CONSTANT, Control, Controls, refuse_none
from ..data.controls import _pool as pool
from ..data.groups import MAX_GROUPS
from ..data.sample import Sample
from ..measures.cell_rows import people, sample
from ..measures.cells import PRODUCT, SCORE, SCORE2, TARGET, TARGET2, WEIGHT, WEIGHT2, Cells
from ..measures.effective import check_effective_size
from ..measures.entropies import get_estimator
from .conditional import Conditional, audit_given
from .group_tables import AuditedRows, GroupTable
from .result import Audit

# People who are compared with others of the same controls.
MOST_COMPARED = 200_000


def audit_cells(cells: Cells, run: Callable[..., Audit]) -> Audit:
    """The whole audit.

    Parameters
    ----------
    cells : Cells
    run : callable
        ``(rows, tested, attributes, names, warn) → Audit`` of :class:`Sample` that stand for
        everybody and of those that are tested.
    """
    cells = _present(cells)
    rows, tested = people(cells), sample(cells)
    if rows.frequency is None:
        check_effective_size(rows.groups)
    parts = {}
    if len(cells.names) > 1:
        for j, name in enumerate(cells.names):
            levels = tuple(dict.fromkeys(label[j] for label in cells.labels))
            if len(levels) > 1:
                at = np.array([levels.index(label[j]) for label in cells.labels])
                few = [_regroup(v, levels, at, name) for v in (rows, tested)]
                found = run(*few, {}, (), False)
                parts[name] = _exact(found, cells, at, len(levels))
    names = cells.names if len(cells.names) > 1 else ()
    whole = run(rows, tested, parts, names, True)
    return _exact(whole, cells, np.arange(len(cells.labels)), len(cells.labels))


def given_controls(
    cells: Cells, n_controls: int, estimator: Any = "auto", confidence_level: float = 0.95,
    random_state: int = 0, reference: Any = "largest",
) -> Conditional:  # fmt: skip
    """Judge scores among people with the same controls, from cells of attributes and controls.

    Beyond :data:`MOST_COMPARED` people as many of them are compared, evenly spread over the cells,
    and errors are those of as many.

    Parameters
    ----------
    cells : Cells
        Of attributes crossed with controls, of which the levels are text.
    n_controls : int
        How many of the crossed columns, the last ones, are controls.
    estimator, confidence_level, random_state, reference
        As in :func:`evenhand.audit`.
    """
    cells = _present(cells, MAX_GROUPS**2)
    rows = sample(cells, MOST_COMPARED, MOST_COMPARED)
    codes = rows.groups.codes
    assert codes is not None
    first = len(cells.names) - n_controls
    own = [label[0] if first == 1 else label[:first] for label in cells.labels]
    attributes = tuple(dict.fromkeys(own))
    at = np.array([attributes.index(label) for label in own])
    groups = _regroup(rows, attributes, at, " × ".join(cells.names[:first])).groups
    columns = []
    for j, name in enumerate(cells.names[first:], first):
        texts, inverse = np.unique([label[j] for label in cells.labels], return_inverse=True)
        columns.append(Control(name, None, *pool(inverse[codes], texts)))
    gone = {column.name: CONSTANT for column in columns if column.is_constant}
    controls = Controls(tuple(c for c in columns if c.name not in gone), gone)
    refuse_none(controls)
    name = estimator if isinstance(estimator, str) else type(estimator).__name__
    return audit_given(
        rows.scores, groups, controls, get_estimator(estimator, random_state), reference,
        seed=random_state, confidence_level=confidence_level, estimator=name, n_boot=0,
    )  # fmt: skip


def _present(cells: Cells, most: int = MAX_GROUPS) -> Cells:
    """Without groups that nobody is in; fewer than two that somebody is in are refused."""
    present = np.bincount(cells.group, minlength=len(cells.labels)) > 0
    labels = tuple(label for label, k in zip(cells.labels, present, strict=True) if k)
    if len(labels) < 2:
        found = f"only {labels[0]!r}" if labels else "no known group"
        raise ValueError(
            f"`cells` must hold at least two groups to compare, found {found} among {cells.n:,} "
            "people. Hint: merge them with cells of others first."
        )
    if len(labels) > most:
        raise ValueError(
            f"`cells` must hold at most {most:,} groups, found {len(labels)}. Hint: merge rare "
            "groups into larger ones before counting."
        )
    number = (np.cumsum(present) - 1).astype(np.int32)
    return replace(cells, labels=labels, group=number[cells.group])


def _regroup(rows: Sample, levels: tuple[Any, ...], at: NDArray[np.intp], name: str) -> Sample:
    """The same rows by one of several crossed attributes."""
    assert rows.groups.codes is not None
    groups = replace(rows.groups, labels=levels, codes=at[rows.groups.codes], name=name)
    return replace(rows, groups=groups)


def _exact(found: Audit, cells: Cells, at: NDArray[np.intp], n_groups: int) -> Audit:
    """Put in what the sums say exactly; `at` is the group of each label of the cells."""
    own = at[cells.group]
    sums = np.stack([np.bincount(own, c, n_groups) for c in cells.sums.T], axis=1).astype(
        np.float64
    )
    count = np.bincount(own, cells.count, n_groups).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        table, values = _exact_table(found._groups.columns, cells, sums, count)
        r2 = _r2(cells) if cells.has_target else float("nan")
    gaps = replace(found.disparities, mean_score_gap=float(np.ptp(values["mean_score"])))
    if cells.has_target:
        rmse = values["rmse"]
        ratio = float(rmse.max() / rmse.min()) if rmse.min() > 0 else float("nan")
        gaps = replace(gaps, rmse_ratio=ratio)
    rows = found._rows
    if isinstance(rows, AuditedRows):
        rows = rows.standing_for(cells.n)
    return replace(
        found, n_rows=cells.n + cells.n_unknown, n_unknown=cells.n_unknown, r2=r2,
        disparities=gaps, _groups=GroupTable(table), _rows=rows,
    )  # fmt: skip


def _exact_table(
    columns: dict[str, list[Any]], cells: Cells, sums: Vector, count: Vector
) -> tuple[dict[str, list[Any]], dict[str, Vector]]:
    mass = sums[:, WEIGHT]
    size = np.square(mass) / sums[:, WEIGHT2]
    values, spreads = _moments(cells, sums)
    # Where rows stand for several people their margins are those of fewer.
    shrink = np.sqrt(np.asarray(columns["n_effective"]) / size)
    out = dict(columns)
    for name in columns:
        if f"{name}_low" in columns:
            before = np.asarray(columns[name])
            value = values.get(name, before)
            out[name] = value.tolist()
            for end in ("low", "high"):
                margin = np.asarray(columns[f"{name}_{end}"]) - before
                out[f"{name}_{end}"] = (value + margin * shrink).tolist()
    out |= {name: spread.tolist() for name, spread in spreads.items()}
    out |= {
        "n": [int(c) for c in count],
        "share": (mass / mass.sum()).tolist(),
        "n_effective": size.tolist(),
    }
    return out, values


def _moments(cells: Cells, sums: Vector) -> tuple[dict[str, Vector], dict[str, Vector]]:
    """Means, errors and slopes of each group, and standard deviations, by name of the column."""
    edges, mass = cells.edges, sums[:, WEIGHT]
    s1, y1, s2, y2, sy = (
        sums[:, j] / mass for j in (SCORE, TARGET, SCORE2, TARGET2, PRODUCT)
    )  # fmt: skip
    variance_s = np.maximum(s2 - s1 * s1, 0.0)
    values, spreads = {"mean_score": s1 + edges.score.shift}, {"sd_score": np.sqrt(variance_s)}
    if edges.target is not None:
        apart = edges.target.shift - edges.score.shift
        residual = y1 - s1
        mse = np.maximum(y2 - 2.0 * sy + s2 + 2.0 * apart * residual + apart * apart, 0.0)
        values |= {
            "mean_target": y1 + edges.target.shift,
            "mean_residual": residual + apart,
            "rmse": np.sqrt(mse),
            "calibration_slope": np.where(variance_s > 0, (sy - s1 * y1) / variance_s, np.nan),
        }
        spreads |= {
            "sd_target": np.sqrt(np.maximum(y2 - y1 * y1, 0.0)),
            "sd_residual": np.sqrt(np.maximum(mse - np.square(residual + apart), 0.0)),
        }
    return values, spreads


def _r2(cells: Cells) -> float:
    """1 − mean (y − s)²/Var(y)."""
    values, spreads = _moments(cells, cells.sums.sum(axis=0)[None, :])
    error, spread = values["rmse"][0], spreads["sd_target"][0]
    return float(1.0 - np.square(error / spread)) if spread > 0 else float("nan")

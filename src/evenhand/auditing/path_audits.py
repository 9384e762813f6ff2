"""The models of a fairness path as audits, so that pages show both alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..data.criteria import get_criterion
from ..data.sample import Sample
from ..measures.exact_tests import exact_fairness_p_values
from .audits import count_negative, sample_rows
from .group_tables import AuditedRows, summarize_groups
from .pricing import exposed
from .result import Audit

if TYPE_CHECKING:
    from ..measures.measures import Measure
    from ..training.path import FairnessPath, PathPoint


def audits_of(path: FairnessPath, points: Sequence[PathPoint] | None = None) -> list[Audit]:
    """Return one audit per point, of its held-out scores; all points when left out.

    Only the selected point is tested, as only that one is judged in words.
    """
    data = path._data
    assert data is not None
    # A score is a rate where there is an exposure, and so is what it is compared with.
    sample = Sample(
        None, None, data.y, data.sample_weight, None, data.cluster, data.more.get("exposure"),
        others={"c": data.summary, "given": data.more.get("given")},
    ).regroup(data.sensitive_features, warn=False).per_unit()  # fmt: skip
    return [
        _audit_point(path, point, replace(sample, scores=point.scores))
        for point in (path.points if points is None else points)
    ]


def _audit_point(path: FairnessPath, point: PathPoint, sample: Sample) -> Audit:
    rows = sample.known()
    units = replace(rows, groups=exposed(rows.groups, rows.exposure))
    table, gaps = summarize_groups(units, path.confidence_level)
    return Audit(
        measures=_tested(point, sample) if point is path.selected else point.measures,
        disparities=gaps,
        sensitive_name=rows.groups.name,
        labels=rows.groups.label_names,
        n_rows=sample.n_rows,
        n_unknown=sample.n_rows - rows.n_rows,
        confidence_level=path.confidence_level,
        name=weight_name(point.fairness_weight),
        r2=point.accuracy if path.accuracy.key == "r2" else float("nan"),
        n_negative=count_negative(rows),
        _groups=table,
        _sample=sample_rows(units),
        _rows=AuditedRows(units),
    )


def _tested(point: PathPoint, sample: Sample) -> dict[str, Measure]:
    """The measures with p-values, so that "violated" means what it means in an audit."""
    rows = sample.weighted().known()
    summary, given = rows.others["c"], rows.others["given"]
    variables = rows.variables if summary is None else {**rows.variables, "c": summary}
    tests = exact_fairness_p_values(point.measures, variables, rows.groups, random_state=0)
    if given is not None:
        # Measured given it, and tested so.
        other = [name for name in point.measures if get_criterion(name).given == ("y",)]
        variables["y"] = given
        tests |= exact_fairness_p_values(other, variables, rows.groups, random_state=0)
    return {name: replace(m, p_value=tests[name].p_value) for name, m in point.measures.items()}


def weight_name(weight: float) -> str:
    """Return what a point is called."""
    return f"fairness weight {weight:.3g}" if weight else "no fairness term"

"""The models of a fairness path as audits, so that pages show both alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..data.criteria import get_criterion
from ..data.groups import Groups, resolve_groups
from ..data.weights import weighted_rows
from ..measures.exact_tests import exact_fairness_p_values
from .audits import negative_scores, sample_rows
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
    groups = resolve_groups(
        data.sensitive_features,
        n_rows=len(data.y),
        sample_weight=data.sample_weight,
        cluster=data.cluster,
        warn=False,
    )
    # A score is a rate where there is an exposure, and so is what it is compared with.
    exposure = data.more.get("exposure")
    target = data.y if exposure is None else data.y / exposure
    y, units = groups.take_known(target), exposed(groups, exposure)
    out = []
    for point in path.points if points is None else points:
        s = groups.take_known(point.scores)
        rows, gaps = summarize_groups(y, s, units, path.confidence_level)
        selected = point is path.selected
        out.append(
            Audit(
                measures=_tested(point, data, groups, target) if selected else point.measures,
                disparities=gaps,
                sensitive_name=groups.name,
                labels=groups.label_names,
                n_rows=groups.n_rows,
                n_unknown=groups.n_unknown,
                confidence_level=path.confidence_level,
                name=weight_name(point.fairness_weight),
                r2=point.accuracy if path.accuracy.key == "r2" else float("nan"),
                _groups=rows,
                n_negative=negative_scores(y, s),
                _sample=sample_rows(y, s, units),
                _rows=AuditedRows(y, s, units),
            )
        )
    return out


def _tested(point: PathPoint, data: Any, groups: Groups, target: Any) -> dict[str, Measure]:
    """The measures with p-values, so that "violated" means what it means in an audit."""
    rows = weighted_rows(data.sample_weight)
    used = groups if rows is None else groups.take(rows)

    def take(values: Any) -> Any:
        return used.take_known(values if rows is None else values[rows])

    columns = {"s": point.scores, "y": target, "c": data.summary}
    variables = {name: take(values) for name, values in columns.items() if values is not None}
    tests = exact_fairness_p_values(point.measures, variables, used, random_state=0)
    given = data.more.get("given")
    if given is not None:
        # Measured given it, and tested so.
        other = [name for name in point.measures if get_criterion(name).given == ("y",)]
        variables["y"] = take(given)
        tests |= exact_fairness_p_values(other, variables, used, random_state=0)
    return {name: replace(m, p_value=tests[name].p_value) for name, m in point.measures.items()}


def weight_name(weight: float) -> str:
    """Return what a point is called."""
    return f"fairness weight {weight:.3g}" if weight else "no fairness term"

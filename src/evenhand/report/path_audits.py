"""The points of a path as audits, for pages that show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..auditing.result import Audit
    from ..frontier.path import FairnessPath, PathPoint
    from ..information.measures import Measure


def audits_of(path: FairnessPath, points: Sequence[PathPoint] | None = None) -> list[Audit]:
    """One audit per point, of its held-out scores; all points when left out."""
    from ..auditing.disparities import summarize_groups
    from ..auditing.group_moments import AuditedRows
    from ..auditing.pricing import exposed
    from ..auditing.result import Audit
    from ..auditing.sample import negative_scores, sample_rows
    from ..groups.sensitive import Groups, resolve_groups
    from ..groups.weights import weighted_rows
    from ..information.criteria import get_criterion
    from ..information.significance import exact_fairness_p_values

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

    def tested(point: PathPoint) -> dict[str, Measure]:
        """The measures with p-values: what is called violated is so by the rule of an audit."""
        rows = weighted_rows(data.sample_weight)
        used: Groups = groups if rows is None else groups.take(rows)
        columns = {"s": point.scores, "y": target, "c": data.summary}
        variables = {
            name: used.take_known(values if rows is None else values[rows])
            for name, values in columns.items()
            if values is not None
        }
        found = exact_fairness_p_values(point.measures, variables, used, random_state=0)
        given = data.more.get("given")
        if given is not None:
            # Measured given it, and tested so.
            other = [name for name in point.measures if get_criterion(name).given == ("y",)]
            y = used.take_known(given if rows is None else given[rows])
            found |= exact_fairness_p_values(other, {**variables, "y": y}, used, random_state=0)
        return {name: replace(m, p_value=found[name].p_value) for name, m in point.measures.items()}

    y, units = groups.take_known(target), exposed(groups, exposure)
    out = []
    for point in path.points if points is None else points:
        # Only the selected model is judged in words.
        judged = tested(point) if point is path.selected else point.measures
        s = groups.take_known(point.scores)
        rows, gaps = summarize_groups(y, s, units, path.confidence_level)
        out.append(
            Audit(
                measures=judged,
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


def weight_name(weight: float) -> str:
    """What a point is called."""
    return f"fairness weight {weight:.3g}" if weight else "no fairness term"

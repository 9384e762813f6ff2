"""Whole pages, and the small ones that notebooks show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import write_text
from .._core.provenance import stamp
from ..auditing.curves import drawn_rows, grid_over
from .charts import legend
from .control_views import imputation_section
from .driver_views import drivers_section
from .formats import number, short_names
from .markup import Html, csv_link, element, join, json_block, label, page, table
from .notes import GRADES, limits, method
from .price_views import money_sections
from .sections import (
    cards,
    density_chart,
    figures,
    footer,
    gains_table,
    gaps,
    group_table,
    headline,
    measure_table,
    parts_table,
    provenance,
)
from .text import (
    PARTS,
    accuracy,
    fixed,
    grade,
    is_measured,
    part_rows,
    part_word,
    row_count,
    unknown_words,
)
from .verdict_views import impact_section, verdict_section

if TYPE_CHECKING:
    from ..auditing.drivers import Drivers
    from ..auditing.impact import Impact
    from ..auditing.result import Audit, AuditSet
    from ..auditing.verdict import Verdict


# ------------------------------------------------------------------------------------------------
# Who asks, what for, and who signs: the first and the last part of a report.


NOT_STATED = "not stated"
_HEADS = {
    "owner": "Asked by",
    "purpose": "Purpose",
    "model_name": "Model",
    "period": "Period",
    "note": "Note",
}


@dataclass(frozen=True)
class About:
    """What a report is about, in the words of whoever asks for it.

    Whatever is left out is printed as "not stated".

    Attributes
    ----------
    title : str
        The heading.
    owner : str
        Who is responsible for the score, or asks for the report.
    purpose : str
        What the score decides.
    model_name : str
        The model and its version.
    period : str
        The time that the data are from.
    note : str
        Anything else that a reader should know.

    Examples
    --------
    >>> from evenhand.report import About
    >>> About(owner="Pricing", purpose="motor renewals").owner
    'Pricing'
    """

    title: str | None = None
    owner: str | None = None
    purpose: str | None = None
    model_name: str | None = None
    period: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"`{part.name}` must be text or None, got {type(value).__name__}.")

    @classmethod
    def of(cls, about: About | Mapping[str, Any] | None) -> About:
        """An About, or one made of a mapping with its fields.

        Parameters
        ----------
        about : About, mapping or None
        """
        if about is None:
            return cls()
        if isinstance(about, About):
            return about
        if not isinstance(about, Mapping):
            raise ValueError(
                f"`about` must be an About or a dict, got {type(about).__name__}. Hint: "
                "eh.report.About(title=..., owner=...)."
            )
        known = [part.name for part in fields(cls)]
        unknown = [str(name) for name in about if name not in known]
        if unknown:
            raise ValueError(f"`about` must hold only {', '.join(known)}, got {unknown[0]!r}.")
        return cls(**about)

    def to_dict(self) -> dict[str, str | None]:
        """Plain values."""
        return dict(vars(self))


def about_section(about: About, asked: str) -> Html:
    """What is asked and by whom, one line each.

    Parameters
    ----------
    about : About
    asked : str
        What the page answers, in a sentence.
    """
    cells: list[Html] = []
    for name, head in _HEADS.items():
        value = getattr(about, name)
        stated = element("dd", label(value, 2000)) if value else None
        cells += [element("dt", head), stated or element("dd", NOT_STATED, class_="soft")]
    return element(
        "section",
        element("h2", "What is asked, and by whom"),
        element("p", asked),
        element("dl", *cells, class_="facts"),
    )


def signature_block() -> Html:
    """Lines for those who sign: who made the report, and who decides on it."""
    boxes = []
    for role in ("Prepared by", "Approved by"):
        lines = [
            element("div", element("dt", name), element("dd", "\u00a0"), class_="to-fill")
            for name in ("Name", "Role", "Date", "Signature")
        ]
        boxes.append(element("div", element("h3", role), element("dl", *lines), class_="signs"))
    return element(
        "section",
        element("h2", "Signatures"),
        element(
            "p",
            "Who signs has read the limits above, and decides; the numbers do not.",
            class_="note",
        ),
        element("div", *boxes, class_="signatures"),
        class_="whole",
    )


def write_page(text: str, path: Any, force: bool = False) -> Path:
    """Write a page, whole or not at all."""
    return write_text(path, text, force)


def audit_page(
    audit: Audit,
    *,
    about: About | Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    verdict: Verdict | None = None,
    impact: Impact | None = None,
    favorable: str | None = None,
    drivers: Drivers | None = None,
) -> str:
    """One audit as a document.

    Parameters
    ----------
    audit : Audit
        As from :func:`evenhand.audit`.
    about : About or mapping, optional
        Who asks and what for.
    source : mapping, optional
        Facts about the data to print, such as the file and its columns.
    verdict : Verdict, optional
        As from :meth:`Audit.verdict`; it comes first.
    impact : Impact, optional
        As from :meth:`Audit.impact`.
    favorable : {"high", "low"}, optional
        Which scores are good for a person; the impact table's own when left out.
    drivers : Drivers, optional
        As from :func:`evenhand.drivers`, of the same score.
    """
    about = About.of(about)
    title = about.title or "Fairness audit" + (f": {audit.name}" if audit.name else "")
    if favorable is None and impact is not None:
        favorable = impact.favorable
    body = [
        _header(title, audit),
        element("main", about_section(about, _question(audit, verdict)),
                *_audit_sections(audit, verdict=verdict, impact=impact, favorable=favorable),
                *([] if drivers is None else [drivers_section(drivers)]),
                *_end(audit, about, source)),
        footer(),
        json_block(_data(audit, about, source) | _held(verdict=verdict, impact=impact,
                                                       drivers=drivers), "evenhand-data"),
    ]  # fmt: skip
    return page(title, body)


def audit_set_page(
    audits: AuditSet,
    *,
    about: About | Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    verdicts: Mapping[str, Verdict] | None = None,
    impacts: Mapping[str, Impact] | None = None,
    favorable: str | None = None,
) -> str:
    """Several audits: side by side, then one by one.

    Parameters
    ----------
    audits : AuditSet
        Models on the same rows, or attributes one by one.
    about : About or mapping, optional
        Who asks and what for.
    source : mapping, optional
        Facts about the data to print.
    verdicts, impacts : mapping, optional
        By the name of an audit, what :meth:`Audit.verdict` and :meth:`Audit.impact` returned.
    favorable : {"high", "low"}, optional
        Which change of a score is a gain.
    """
    about = About.of(about)
    title = about.title or f"Fairness by {audits.kind}"
    first = next(iter(audits.values()))
    judged = next(iter((verdicts or {}).values()), None)
    parts: list[Any] = [
        about_section(about, _question(first, judged)),
        element("h2", "Side by side"), comparison_table(audits),
    ]  # fmt: skip
    if audits.kind == "model":
        parts += [_before_after(audits), _gains_section(audits, favorable)]
    for number_, (name, audit) in enumerate(audits.items(), 1):
        parts.append(element("h2", f"{audits.kind.capitalize()} {number_}: ", label(name, 120)))
        verdict, impact = (verdicts or {}).get(name), (impacts or {}).get(name)
        parts += _audit_sections(
            audit, "h3", f"{audits.kind}-{number_}-", verdict, impact, favorable
        )
    body = [
        _header(title, first),
        element("main", *parts, *_end(first, about, source)),
        footer(),
        json_block(_data(audits, about, source), "evenhand-data"),
    ]  # fmt: skip
    return page(title, body)


def _question(audit: Audit, verdict: Verdict | None) -> str:
    judged = (
        "No tolerance was stated, so that there is no verdict."
        if verdict is None
        else "It is judged by a tolerance that was written down, below."
    )
    name = short_names([audit.sensitive_name], 60)[0]
    # The name an attribute has when it came as a plain array says nothing.
    whom = "these groups" if name == "group" else f"the groups of {name}"
    if is_measured(audit):
        whom = "people whatever their " + ("attribute" if name == "group" else name)
    return f"Is this score fair to {whom}? {judged}"


def _end(audit: Audit, about: About, source: Mapping[str, Any] | None) -> list[Html]:
    """What stands below the results, in this order."""
    return [
        method(audit.confidence_level, is_measured(audit)),
        provenance(audit, source or {}, about.period or NOT_STATED),
        limits(audit),
        signature_block(),
    ]


def _data(
    found: Audit | AuditSet, about: About, source: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        **found.to_dict(),
        **stamp(),
        "about": about.to_dict(),
        "source": {str(k): str(v) for k, v in (source or {}).items()},
    }


def _header(title: str, audit: Audit) -> Html:
    known = audit.n_rows - audit.n_unknown
    lacking = f" ({audit.n_unknown:,} more without a {unknown_words(audit)})"
    unknown = lacking if audit.n_unknown else ""
    return element(
        "header",
        element("h1", title),
        element(
            "p", f"{row_count(known, audit.n_clusters)}{unknown}, ", _group_count(audit),
            class_="soft",
        ),
    )  # fmt: skip


def _group_count(audit: Audit) -> Html:
    count = f"{len(audit.labels)} groups"
    if is_measured(audit):
        words = "as a measurement (values are 1 − exp(−2·nats), the share of its variance explained"
        words += f" if all is normal); tables and figures by {len(audit.labels)} bands of it"
        return join([label(audit.sensitive_name, 80), " ", words])
    # The name an attribute has when it came as a plain array says nothing.
    if audit.sensitive_name == "group":
        return Html(count)
    return join([count, " of ", label(audit.sensitive_name, 80)])


def _held(**found: Any) -> dict[str, Any]:
    return {key: value.to_dict() for key, value in found.items() if value is not None}


def _audit_sections(
    audit: Audit,
    level: str = "h2",
    prefix: str = "",
    verdict: Verdict | None = None,
    impact: Impact | None = None,
    favorable: str | None = None,
) -> list[Html]:
    words = f" {accuracy(audit.r2)}" if audit.r2 == audit.r2 else ""
    return [
        *([] if verdict is None else [verdict_section(verdict, level, prefix)]),
        money_sections(audit, level, prefix, favorable),
        element(
            "section",
            element(level, "In short"),
            element("p", headline(audit), words, class_="lead"),
            cards(audit),
        ),
        *([] if impact is None else [impact_section(impact, level, prefix)]),
        *(
            []
            if audit.imputation is None
            else [imputation_section(audit.imputation, level, prefix)]
        ),
        element("section", element(level, "In pictures"), figures(audit)),
        element(
            "section",
            element(level, "Numbers"),
            measure_table(audit, f"{prefix}measures.csv"),
            parts_table(audit, f"{prefix}parts.csv"),
            group_table(audit, f"{prefix}groups.csv"),
            gaps(audit),
        ),
    ]


def _side_by_side(audits: AuditSet) -> list[list[Any]]:
    """Cells of a table with one row an audit: name, R², measures with intervals."""
    return [
        [
            label(name, 80),
            number(audit.r2),
            *(
                f"{fixed(m.shown)} ({m.interval[0]:.3f} to {m.interval[1]:.3f})"
                for m in audit.measures.values()
            ),
        ]
        for name, audit in audits.items()
    ]


def comparison_table(audits: AuditSet) -> Html:
    """One row an audit, one column a criterion."""
    criteria = list(next(iter(audits.values())).measures)
    rows = _side_by_side(audits)
    percent = f"{100 * next(iter(audits.values())).confidence_level:g}%"
    frame: dict[str, list[Any]] = {audits.kind: [], "r2": []}
    for name, audit in audits.items():
        frame[audits.kind].append(name)
        frame["r2"].append(audit.r2)
        for m in audit.measures.values():
            for key, value in zip(("", "_low", "_high"), (m.value, *m.interval), strict=True):
                frame.setdefault(m.criterion + key, []).append(value)
    header = [audits.kind.capitalize(), "R²", *(c.capitalize() for c in criteria)]
    caption = f"Measures with {percent} intervals (0 fair, 1 not)"
    return join([table(header, rows, caption=caption), csv_link(frame, "comparison.csv")])


def _before_after(audits: AuditSet) -> Html:
    samples = {name: drawn_rows(audit) for name, audit in audits.items()}
    grid = grid_over(*(sample.s for sample in samples.values()))
    parts = []
    for name, sample in samples.items():
        chart = density_chart(sample, grid, height=220, title=f"Density of scores under {name}")
        parts.append(element("figure", element("figcaption", label(name, 80)), chart.render()))
    first = next(iter(samples.values()))
    omitted = len(next(iter(audits.values())).labels) - len(first.names)
    return element(
        "section",
        element("h2", f"Scores by {part_word(next(iter(audits.values())))}"),
        legend([label(n, 60) for n in first.names], omitted),
        element("div", *parts, class_="figures"),
    )


def _gains_section(audits: AuditSet, favorable: str | None = None) -> Html:
    """Changes of each row's score from the first model to the others, by group."""
    names = list(audits)
    sections = []
    for number_, name in enumerate(names[1:], 2):
        sections += [
            element("p", "From ", label(names[0], 80), " to ", label(name, 80), ":"),
            gains_table(audits[names[0]], audits[name], f"gains-{number_}.csv", favorable),
        ]
    return element("section", element("h2", "Who gains and who loses"), *sections)


_COMPACT = (
    "border-collapse:collapse;font-variant-numeric:tabular-nums",
    "text-align:left;padding:2px 10px",
)


def compact(audit: Audit) -> Html:
    """A few lines for a notebook: the verdict and the measures, without style sheet or script."""
    rows = [
        [
            m.criterion,
            fixed(m.shown),
            f"{m.interval[0]:.4f} to {m.interval[1]:.4f}",
            GRADES[grade(m)],
        ]
        for m in audit.measures.values()
    ]
    parts = part_rows(audit)
    percent = f"{100 * audit.confidence_level:g}%"
    known = audit.n_rows - audit.n_unknown
    unknown = f", {audit.n_unknown:,} rows without one" if audit.n_unknown else ""
    title = "Fairness audit" + (f" of {audit.name}" if audit.name else "")
    return element(
        "div",
        element("p", element("b", title), f": {row_count(known, audit.n_clusters)}, ",
                _group_count(audit), unknown, ". ",
                headline(audit)),
        _compact_table(["criterion", "value", f"{percent} interval", "verdict"], rows),
        element("p", PARTS) if parts else None,
        _compact_table(["", *audit.measures], parts) if parts else None,
    )  # fmt: skip


def compact_set(audits: AuditSet) -> Html:
    """Audits side by side, for a notebook."""
    criteria = list(next(iter(audits.values())).measures)
    rows = _side_by_side(audits)
    return element("div", _compact_table([audits.kind, "R²", *criteria], rows))


def _compact_table(header: list[str], rows: list[list[Any]]) -> Html:
    head = element("tr", *(element("th", h, style=_COMPACT[1]) for h in header))
    body = [element("tr", *(element("td", c, style=_COMPACT[1]) for c in row)) for row in rows]
    return element("table", element("thead", head), element("tbody", *body), style=_COMPACT[0])

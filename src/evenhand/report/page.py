"""The frame of a page: who asks, the method, data and software, the limits, and who signs."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .. import __version__
from .._core.provenance import now, stamp
from ..data.criteria import CRITERIA, get_criterion, listing
from ..measures.measures import RULE, asked
from .gap_views import imputation_words
from .markup import asset, element, escape, label, page
from .view import Table, View, bullets, facts, section
from .words import group_name, is_measured, part_word, percent, row_count, unknown_words

if TYPE_CHECKING:
    from ..auditing.result import Audit


def signed_page(
    data: Mapping[str, Any], audit: Audit, about: About | Mapping[str, Any] | None,
    source: Mapping[str, Any] | None, heading: tuple[str, Any, str], body: Sequence[Any], *,
    facts: Mapping[str, Any], how: Sequence[View] = (), caveats: Sequence[str] = (),
    script: str | None = None,
) -> str:  # fmt: skip
    """Return a page to sign: what is asked, the results, and what stands behind them.

    Parameters
    ----------
    data : mapping
        The results, for programs.
    audit : Audit
        Whose rows, method and limits are described.
    about : About, mapping or None
        Who asks and what for.
    source : mapping or None
        Facts about the data to print.
    heading : (str, str or Html, str)
        The title, the line below it, and the question that the page answers.
    body : sequence of View or Html
        The results.
    facts : mapping
        Further facts, such as the estimator.
    how, caveats : sequences
        What to add to the method and the limits.
    script : str, optional
    """
    asked, source = About.of(about), source or {}
    title, under, question = heading
    parts = [
        about_section(asked, question),
        *body,
        method(audit, how),
        provenance(audit, {**source, "Period": asked.period or NOT_STATED, **facts}),
        limits(audit, caveats),
    ]
    shown = [section(part) if isinstance(part, View) else part for part in parts]
    sources = {str(k): str(v) for k, v in source.items()}
    whole = {**data, **stamp(), "about": asked.to_dict(), "source": sources}
    return page(asked.title or title, under, [*shown, asset("signatures.html")], whole, script)


# ------------------------------------------------------------------------------------------------
# Who asks, what for, and who signs: the first and the last part of a report.


NOT_STATED = "not stated"


def _stated(head: str) -> Any:
    """A field that a report prints under a head."""
    return field(default=None, metadata={"head": head})


@dataclass(frozen=True)
class About:
    """What a report is about, in the words of whoever asks for it.

    Entries that are left out are printed as "not stated".

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
    unit : str
        Currency or unit of the score, such as "EUR per year".
    held_out : str
        Whether the model was fitted to other rows than these, and to which.
    limits_by : str
        Who set the limits of the tolerance, and when.
    note : str
        Anything else that a reader should know.

    See Also
    --------
    evenhand.Audit
    evenhand.report.write_pack

    Examples
    --------
    >>> from evenhand.report import About
    >>> About(owner="Pricing", purpose="motor renewals").owner
    'Pricing'
    """

    title: str | None = None
    owner: str | None = _stated("Asked by")
    purpose: str | None = _stated("Purpose")
    model_name: str | None = _stated("Model")
    period: str | None = _stated("Period")
    unit: str | None = _stated("Unit of the score")
    held_out: str | None = _stated("Rows held out from training")
    limits_by: str | None = _stated("Limits set by, and when")
    note: str | None = _stated("Note")

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


def about_section(about: About, question: str) -> View:
    """Return what is asked and by whom, one line each."""
    unsaid = element("span", NOT_STATED, class_="soft")
    said = {f.metadata["head"]: getattr(about, f.name) for f in fields(about) if f.metadata}
    rows = [(head, label(text, 2000) if text else unsaid) for head, text in said.items()]
    return View("What is asked, and by whom", question, facts(rows))


def provenance(audit: Audit, more: Mapping[str, Any]) -> View:
    """Return data and software: enough to do it again."""
    known = f"{audit.n_rows:,}, of which {audit.n_unknown:,} without a {unknown_words(audit)}"
    count = [] if audit.n_clusters is None else [("Clusters", f"{audit.n_clusters:,}")]
    has_exposure = audit.pricing is not None and audit.pricing.has_exposure
    weighted = audit._rows.rows.groups.weight is not None and not has_exposure
    weights = audit.counted or ("given" if weighted else "none")
    table = [
        *((str(name), escape(value)) for name, value in {"Weights": weights, **more}.items()),
        ("Sensitive attribute", label(audit.sensitive_name)),
        ("Rows", " ".join([f"{known}.", *audit.remarks])),
        *count,
        ("Confidence level", percent(audit.confidence_level)),
    ]
    return made_with(table)


def made_with(rows: Sequence[tuple[str, Any]]) -> View:
    """Return facts about the data, the software and when the page was written."""
    return View("Data and software", facts([*rows, *software().items()]))


def software() -> dict[str, str]:
    """Return the versions of what computed the numbers, and when."""
    versions = [f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "numba")]
    used = [f"evenhand {__version__}", *versions, f"Python {platform.python_version()}"]
    return {"Software": ", ".join(used), "Written": now().strftime("%Y-%m-%d %H:%M UTC")}


# ------------------------------------------------------------------------------------------------
# The method, in words: the formulas are in the documentation, for those who want them.


_ESTIMATES = " Values are estimates; one that comes out slightly below zero is shown as 0."
# What the measures mean, and how they are estimated.
_GROUP = (
    "Each measure is the share of the uncertainty about a person's group that is removed by "
    "learning what should tell nothing: 0 is exactly fair, 1 gives the group away. It sees "
    "differences of every kind, not only of averages.",
    "The uncertainty is what remains to a classifier that gives each person a probability of each "
    "group. It is measured once with what should tell nothing and once without. The table of "
    f"measures names the classifier.{_ESTIMATES}",
)
_MEASUREMENT = (
    "Each measure says how well the attribute could be told from what should tell nothing: 0 is "
    "exactly fair, 1 gives the attribute away. If all is normal, it is the share of the variance "
    "of the attribute that is explained. It sees dependence of every kind, not only a straight "
    "line. It is not on the scale of measures of groups or bands; nats are.",
    "Two densities of the attribute are estimated, with and without what should tell nothing, and "
    "compared. The table of measures names the kind of density. Only the order of the values "
    f"counts, so outliers and units do not.{_ESTIMATES}",
)


def method(audit: Audit, more: Sequence[View] = ()) -> View:
    """Return what was computed, in words."""
    measured = is_measured(audit)
    heads = ["Criterion", "Question", "Suits decisions where"]
    rows = [[c.title, asked(c, measured), c.suits] for c in CRITERIA.values()]
    meaning, estimated = _MEASUREMENT if measured else _GROUP
    differ = "depend on the attribute" if measured else "differ between groups"
    return View(
        "Method",
        meaning,
        Table(heads, rows, "The criteria", wrapped=True),
        estimated,
        f"Intervals cover the true value in about {percent(audit.confidence_level)} of "
        f"samples. {RULE} The measure says how much: slightly (under 0.01), clearly (under "
        "0.10) or strongly. These words are a convention of this report, not limits set by "
        "any law.",
        f"Where outcomes {differ}, no useful score satisfies independence, separation and "
        "sufficiency at once. Which one counts is a decision for people, to be made before "
        "looking at the numbers.",
        *more,
    )


# ------------------------------------------------------------------------------------------------
# Limits of the evidence.


def limits(audit: Audit, extra: Sequence[str] = ()) -> View:
    """Return what these data cannot tell."""
    measured = is_measured(audit)
    items = [_size_limit(audit), *_row_limits(audit), *_not_measured(audit), *extra]
    items += [
        "The target is taken as it was recorded. If it was measured or decided unfairly, a score "
        "that fits it passes that on.",
        f"The measures say how strongly a score and {'the attribute' if measured else 'a group'} "
        "are related, not why, and not to whose advantage: for that, see the "
        f"{part_word(audit)}s.",
        "Only this attribute was looked at; people with the same value may differ in others."
        if measured
        else "Only the groups named here were compared; people within a group may differ.",
        "The numbers describe these rows. For other people or later years, measure again.",
        "This report is evidence for a decision. It is not legal advice.",
    ]
    return View("Limits of the evidence", bullets(items))


def _size_limit(audit: Audit) -> str:
    """How many rows there are, and in the smallest group."""
    rows = f"{row_count(audit.n_rows - audit.n_unknown, audit.n_clusters)} were measured. "
    if is_measured(audit):
        return f"{rows}Tables and figures are by bands of the attribute; the measures are not."
    columns = audit._groups.columns
    sizes = columns.get("n_effective", columns["n"])
    smallest = min(range(len(sizes)), key=lambda k: sizes[k])
    count, advice = sizes[smallest], ""
    if count < 30:
        advice = " Nothing can be said about a group of this size on its own."
    elif count < 200:
        advice = " Statements about a group of this size are rough."
    unit = "rows" if audit.n_clusters is None else "clusters"
    if round(count) != round(columns["n"][smallest]):
        unit = f"effective {unit}"
    return (
        f"{rows}The smallest of {len(sizes)} groups is {group_name(columns['group'][smallest])} "
        f"with {count:,.0f} {unit}.{advice}"
    )


def _row_limits(audit: Audit) -> list[str]:
    """Clusters, unknown and inferred groups."""
    out = []
    if audit.n_clusters is not None:
        out.append(
            "Rows of one cluster are not independent. Sampling errors therefore count clusters, "
            "and no cluster is judged by a classifier that was fitted to it."
        )
    if audit.n_unknown:
        out.append(
            f"{audit.n_unknown:,} of {audit.n_rows:,} rows "
            f"({100 * audit.n_unknown / audit.n_rows:.1f}%) have no {unknown_words(audit)} and "
            "are left out. If they differ from the others, the true values may differ too."
        )
    else:
        out.append(f"The {'attribute' if is_measured(audit) else 'group'} of every row is known.")
    if audit.imputation is not None:
        out.append(imputation_words(audit.imputation))
    return out


def _not_measured(audit: Audit) -> list[str]:
    """A sentence for each column that was not given and the criteria that need it."""
    had = {need for name in audit.measures for need in get_criterion(name).needs}
    lacking: dict[str, list[str]] = {}
    for criterion in CRITERIA.values():
        for name in criterion.needs:
            if criterion.name not in audit.measures and name not in had:
                word = "true outcome" if name == "y" else criterion.variable(name).word
                lacking.setdefault(word, []).append(criterion.name)
    return [
        f"No {word} was given: {listing(names)} cannot be measured."
        for word, names in lacking.items()
    ]

"""The words of the report that do not depend on the numbers, or hardly."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..data.criteria import CRITERIA, Condition, Criterion, get_criterion, listing
from .markup import Html, element, label, table
from .text import imputation_words, is_measured, part_word, row_count, unknown_words

if TYPE_CHECKING:
    from ..auditing.result import Audit


GRADES = {
    "undefined": "– Nothing to measure",
    "holds": "✓ Holds as far as these data can tell",
    "unclear": "? Not enough data to tell",
    "slight": "! Slightly violated",
    "unsized": "! Violated, size not known",
    "clear": "✕ Clearly violated",
    "strong": "✕ Strongly violated",
}
PHRASES = {
    "undefined": "has nothing to measure",
    "holds": "holds as far as these data can tell",
    "unclear": "is left open (not enough data)",
    "slight": "is slightly violated",
    "unsized": "is violated, by how much is not known",
    "clear": "is clearly violated",
    "strong": "is strongly violated",
}


def _math(body: str) -> Html:
    return Html(f'<math display="inline">{body}</math>')


def _info(inside: str) -> str:
    return f"<mi>I</mi><mo>(</mo>{inside}<mo>)</mo>"


def _entropy(inside: str) -> str:
    return f"<mi>H</mi><mo>(</mo>{inside}<mo>)</mo>"


_A, _GIVEN, _SEMI, _COMMA = "<mi>A</mi>", "<mo>|</mo>", "<mo>;</mo>", "<mo>,</mo>"


def formula(criterion: Criterion, measured: bool = False) -> Html:
    """The normalized information of a criterion, of groups or of a measurement."""

    def names(condition: Condition) -> str:
        return _COMMA.join(f"<mi>{escape(criterion.symbols((v,)))}</mi>" for v in condition)

    def group(condition: Condition) -> str:
        return _A + (_GIVEN + names(condition) if condition else "")

    information = names(criterion.tested) + _SEMI + group(criterion.given)
    if measured:
        power = f"<mo>−</mo><mn>2</mn>{_info(information)}"
        return _math(f"<mn>1</mn><mo>−</mo><msup><mi>e</mi><mrow>{power}</mrow></msup>")
    given, joint = _entropy(group(criterion.given)), _entropy(group(criterion.joint))
    left = f"<mfrac><mrow>{_info(information)}</mrow><mrow>{given}</mrow></mfrac>"
    right = f"<mfrac><mrow>{given}<mo>−</mo>{joint}</mrow><mrow>{given}</mrow></mfrac>"
    return _math(f"{left}<mo>=</mo>{right}")


_LOG_LOSS = _math(
    f"{_entropy(_A + _GIVEN + '<mi>Z</mi>')}<mo>≈</mo><mo>−</mo>"
    "<mfrac><mn>1</mn><mi>n</mi></mfrac>"
    "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
    "<mi>log</mi><mo>⁡</mo><mi>ρ</mi><mo>(</mo><msub><mi>a</mi><mi>i</mi></msub>"
    "<mo>|</mo><msub><mi>z</mi><mi>i</mi></msub><mo>)</mo>"
)


_GROUP = (
    "A the group.",
    " Each measure is the share of the uncertainty about a person's group that is removed by "
    "learning what the criterion says should tell nothing: 0 is exactly fair, 1 gives the group "
    "away. It sees every kind of difference, not only one of averages.",
)
_MEASUREMENT = (
    "A the attribute, a measurement.",
    " I is the information in nats that what the criterion says should tell nothing carries about "
    "the attribute, and each measure is 1 − exp(−2·I): 0 is exactly fair, 1 gives the attribute "
    "away. If all is normal that is the share of the variance of the attribute that is explained. "
    "It sees every kind of dependence, not only a straight line. It is not on the scale of "
    "measures of groups, bands among them; nats are.",
)


def method(confidence_level: float, measured: bool = False) -> Html:
    """What was computed, with the formulas; `measured` where the attribute is a measurement."""
    from ..measures.measures import RULE, asked

    shown = CRITERIA.values()
    rows = [
        [c.title, c.statement, formula(c, measured), asked(c, measured), c.suits] for c in shown
    ]
    symbol, meaning = _MEASUREMENT if measured else _GROUP
    differ = "depend on the attribute" if measured else "differ between groups"
    further = {v.symbol: v.word for c in shown for v in c.variables}
    legend = "".join(f" {symbol} is the {word}." for symbol, word in further.items())
    header = ["Criterion", "Statement", "Measure", "Question", "Suits decisions where"]
    return element(
        "section",
        element("h2", "Method"),
        element(
            "p",
            f"S is the score, Y the true outcome (the target), {symbol}{legend}{meaning}",
        ),
        table(header, rows, caption="The criteria", class_="words"),
        _estimated(measured),
        element(
            "p",
            f"Intervals cover the true value in about {100 * confidence_level:g}% of repeated "
            "samples. ",
            RULE,
            " The measure says how much: slightly (under 0.01), clearly (under 0.10) or strongly. "
            "These words are a convention of this report, not limits set by any law.",
        ),
        element(
            "p",
            f"Where outcomes {differ}, no useful score satisfies independence, "
            "separation and sufficiency at once. Which one counts is a decision for people, to be "
            "made before looking at the numbers.",
        ),
    )


def _estimated(measured: bool) -> Html:
    end = " Values are estimates; one that comes out slightly below zero is shown as 0."
    if measured:
        return element(
            "p",
            "I is the mean log ratio of two estimated densities of the attribute, with and without "
            "what should tell nothing. The kind of density stands in the table of measures. Only "
            "the order of the values counts, so that outliers and units do not." + end,
        )
    return element(
        "p",
        "Each entropy is the mean log loss of a probabilistic classifier ρ of the group: ",
        _LOG_LOSS,
        ". The classifier used stands in the table of measures." + end,
    )


def limits(audit: Audit, extra: tuple[str, ...] = ()) -> Html:
    """What these data cannot tell."""
    known = audit.n_rows - audit.n_unknown
    columns = audit._groups.columns
    sizes = columns.get("n_effective", columns["n"])
    smallest = min(range(len(sizes)), key=lambda k: sizes[k])
    count = sizes[smallest]
    items: list[Html] = []
    advice = ""
    if count < 30:
        advice = " Nothing can be said about a group of this size by itself."
    elif count < 200:
        advice = " Statements about a group of this size are rough."
    unit = "rows" if audit.n_clusters is None else "clusters"
    measured = is_measured(audit)
    rows = f"{row_count(known, audit.n_clusters)} were measured. "
    if measured:
        bands = "Tables and figures are by bands of the attribute; the measures are not."
        items.append(element("li", rows + bands))
    else:
        items.append(
            element(
                "li", f"{rows}The smallest of {len(sizes)} groups is ",
                label(columns["group"][smallest], 80), f" with {count:,.0f} {unit}.{advice}",
            )
        )  # fmt: skip
    if audit.n_clusters is not None:
        items.append(
            element(
                "li",
                "Rows of one cluster are not independent of each other: sampling errors count "
                "clusters, and no cluster is judged by a classifier that has seen it.",
            )
        )
    items += [element("li", text) for text in audit.remarks]
    if audit.n_unknown:
        items.append(
            element(
                "li",
                f"{audit.n_unknown:,} of {audit.n_rows:,} rows "
                f"({100 * audit.n_unknown / audit.n_rows:.1f}%) have no {unknown_words(audit)} and "
                "are left out. If they differ from the others, so may the true values.",
            )
        )
    else:
        what = "attribute" if measured else "group"
        items.append(element("li", f"The {what} of every row is known."))
    if audit.imputation is not None:
        items.append(element("li", imputation_words(audit.imputation)[0]))
    items += [element("li", text) for text in _not_measured(audit)]
    words = (
        "The target is taken as it was recorded. If it was measured or decided unfairly, a score "
        "that fits it passes that on.",
        f"The measures say how much a score and {'the attribute' if measured else 'a group'} have "
        "to do with each other, not why, and not to whose advantage: for that, see the "
        f"{part_word(audit)}s.",
        "Only the groups named here were compared; people within a group may differ."
        if not measured
        else "Only this attribute was looked at; people of the same value may differ in others.",
        "The numbers describe these rows. For other people or later years, measure again.",
        "This report is evidence for a decision. It is not legal advice.",
    )
    items += [element("li", text) for text in (*extra, *words)]
    return element("section", element("h2", "Limits of the evidence"), element("ul", *items))


def _not_measured(audit: Audit) -> list[str]:
    """A sentence for each column that was not given and the criteria that need it."""
    had = {name for found in audit.measures for name in get_criterion(found).needs}
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

"""Criteria as data: which two conditional entropies of the group each one compares.

==============  ===============  =============================  ===========
criterion       statement        information (nats)             normalizer
==============  ===============  =============================  ===========
independence    S ⟂ A            I(S;A)   = H(A)   − H(A|S)     H(A)
separation      S ⟂ A | Y        I(S;A|Y) = H(A|Y) − H(A|S,Y)   H(A|Y)
sufficiency     Y ⟂ A | S        I(Y;A|S) = H(A|S) − H(A|S,Y)   H(A|S)
==============  ===============  =============================  ===========

A criterion of one's own is one more :class:`Criterion`, made known by :func:`register_criterion`:
audits, fits, frontiers, reports and the command line then have it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .._core.arrays import Array
from .._core.validation import InputError

# What a conditional entropy of the group conditions on: () is H(A), ("s", "y") is H(A|S,Y).
Condition = tuple[str, ...]
Column = Array

NOTHING: Condition = ()
SCORE: Condition = ("s",)
TARGET: Condition = ("y",)
BOTH: Condition = ("s", "y")


@dataclass(frozen=True)
class Variable:
    """A column that criteria speak of: given, or v = value(columns) row by row.

    Attributes
    ----------
    name : str
        In conditions.
    word, symbol : str
        In sentences and in formulas; made from the name where left out.
    of : tuple of str
        The columns it is computed from; empty for one that is given.
    value : callable, optional
        The columns `of`, in this order, → the (n,) column.
    slope : callable, optional
        The same → ∂v/∂s of each row, with which models can be trained for it.

    See Also
    --------
    evenhand.Criterion
    evenhand.register_criterion

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.Variable("r", "residual", "R", ("s", "y"), lambda s, y: y - s).word
    'residual'
    """

    name: str
    word: str = ""
    symbol: str = ""
    of: tuple[str, ...] = ()
    value: Callable[..., Column] | None = None
    slope: Callable[..., Column] | None = None

    def __post_init__(self) -> None:
        if bool(self.of) != (self.value is not None):
            raise ValueError(
                f"`value` of the variable {self.name!r} must be given together with `of`, the "
                "columns that it is computed from."
            )
        object.__setattr__(self, "word", self.word or self.name)
        object.__setattr__(self, "symbol", self.symbol or self.name.upper())

    @property
    def moves(self) -> bool:
        """Whether it changes with the score."""
        return self.name == "s" or "s" in self.of


VARIABLES: dict[str, Variable] = {"s": Variable("s", "score"), "y": Variable("y", "target")}


def get_variable(name: str) -> Variable:
    """A variable by name; one that nobody has described is a given column called by its name."""
    return VARIABLES.get(name) or Variable(name)


def word_for(variable: str) -> str:
    """What a variable is called in sentences."""
    return get_variable(variable).word


@dataclass(frozen=True)
class Criterion:
    """What a score must not reveal: H(A | given) − H(A | joint), as a share of H(A | given).

    Words that are left out are made from those of the variables.

    Attributes
    ----------
    name : str
        A word, as it is typed on the command line and stands over columns.
    given, joint : Condition
        What is conditioned on before and after the variable under test is revealed: names of
        variables, "s" the score, "y" the target, or others.
    statement : str
        The independence statement, for tables.
    meaning : str
        The value in words; ``{percent}`` stands for the normalized value.
    question : str
        What it asks, for people.
    suits : str
        The decisions it is for.
    variables : tuple of Variable
        Those of `joint` that are computed from others, or have words of their own.

    See Also
    --------
    evenhand.Variable
    evenhand.register_criterion
    evenhand.independence

    References
    ----------
    Barocas, S., Hardt, M. and Narayanan, A. (2023). Fairness and Machine Learning. MIT Press.

    Examples
    --------
    >>> from evenhand.data.criteria import get_criterion
    >>> get_criterion("separation").statement
    'S ⟂ A | Y'
    """

    name: str
    given: Condition
    joint: Condition
    statement: str = ""
    meaning: str = ""
    question: str = ""
    suits: str = ""
    variables: tuple[Variable, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"`name` of a criterion must be one word, got {self.name!r}.")
        if isinstance(self.given, str) or isinstance(self.joint, str):
            raise ValueError(
                f"`given` and `joint` of {self.name!r} must be tuples of names, got {self.given!r} "
                f'and {self.joint!r}. Hint: ("s",) with a comma.'
            )
        if not set(self.given) < set(self.joint):
            raise ValueError(
                f"`joint` of {self.name!r} must hold all of `given` and more, got {self.given!r} "
                f"and {self.joint!r}."
            )
        known = {v.name for v in self.variables}
        if known - set(self.joint):
            raise ValueError(
                f"`variables` of {self.name!r} must be named in `joint`, got "
                f"{', '.join(sorted(known - set(self.joint)))} besides."
            )
        tested, given = self.words(self.tested), self.words(self.given) if self.given else ""
        among = f"among people with the same {given}, " if given else ""
        after = f" | {self.symbols(self.given)}" if given else ""
        told = f"{among}knowing the {tested} removes {{percent}} of the uncertainty about the group"
        asked = f"{among}does the {tested} look the same in every group?"
        words = {
            "given": _ordered(self.given),
            "joint": _ordered(self.joint),
            "statement": self.statement or f"{self.symbols(self.tested)} ⟂ A{after}",
            "meaning": self.meaning or told,
            "question": self.question or asked[0].upper() + asked[1:],
        }
        for field, value in words.items():
            object.__setattr__(self, field, value)

    @property
    def title(self) -> str:
        """The name at the head of a sentence or a column."""
        return self.name.replace("_", " ").capitalize()

    @property
    def tested(self) -> Condition:
        """The variables under test: those of `joint` beyond `given`."""
        return tuple(name for name in self.joint if name not in self.given)

    @property
    def needs(self) -> Condition:
        """The columns besides the score that it is measured from."""
        named = [part for name in self.joint for part in self.variable(name).of or (name,)]
        return tuple(name for name in _ordered(dict.fromkeys(named)) if name != "s")

    @property
    def equalizes_scores(self) -> bool:
        """Whether it asks for nothing but the same distribution of scores in every group."""
        return self.given == NOTHING and self.joint == SCORE

    def variable(self, name: str) -> Variable:
        """One of its variables."""
        return next((v for v in self.variables if v.name == name), get_variable(name))

    def moves(self, condition: Condition) -> bool:
        """Whether a condition changes with the score."""
        return any(self.variable(name).moves for name in condition)

    def words(self, condition: Condition) -> str:
        """A condition in a sentence: "score and target"."""
        return listing([self.variable(name).word for name in condition])

    def symbols(self, condition: Condition) -> str:
        """A condition in a formula: "S,Y"."""
        return ",".join(self.variable(name).symbol for name in condition)


def _ordered(names: Iterable[str]) -> Condition:
    """Score, target, others: one order, so that criteria share their entropies."""
    first = ("s", "y")
    names = list(names)
    return (*(n for n in first if n in names), *(n for n in names if n not in first))


def listing(words: Collection[str]) -> str:
    """ "a, b and c"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


INDEPENDENCE = Criterion(
    "independence",
    NOTHING,
    SCORE,
    meaning="knowing a prediction removes {percent} of the uncertainty about the group",
    question="Do scores look the same in every group?",
    suits="The outcome itself is held to be distorted, or equal treatment of groups is the aim: "
    "quotas, access, advertising.",
)
SEPARATION = Criterion(
    "separation",
    TARGET,
    BOTH,
    meaning="among people with the same true outcome, knowing a prediction removes {percent} of "
    "the uncertainty about the group",
    question="Are people with the same true outcome scored alike, whatever their group?",
    suits="The recorded outcome is trusted and errors must not fall on one group: lending, hiring, "
    "medicine.",
)
SUFFICIENCY = Criterion(
    "sufficiency",
    SCORE,
    BOTH,
    meaning="among people with the same prediction, knowing the true outcome removes {percent} of "
    "the uncertainty about the group",
    question="Does the same score mean the same outcome in every group?",
    suits="A score is read as a forecast and must mean the same for everyone: prices, reserves, "
    "risk classes.",
)

CONDITIONAL = Criterion(
    "conditional",
    ("c",),
    ("s", "c"),
    meaning="among people with the same controls, knowing a prediction removes {percent} of the "
    "uncertainty about the group",
    question="Are people with the same legitimate factors scored alike, whatever their group?",
    suits="Some factors may be used whatever their effect on groups: rating factors, experience, "
    "qualifications.",
    variables=(Variable("c", "controls"),),
)

# All that are known by name, in the order in which tables show them.
CRITERIA: dict[str, Criterion] = {c.name: c for c in (INDEPENDENCE, SEPARATION, SUFFICIENCY)}


# Those that need columns of their own, which no score and target bring along.
WITH_CONTROLS: dict[str, Criterion] = {CONDITIONAL.name: CONDITIONAL}


def register_criterion(criterion: Criterion) -> Criterion:
    """Make a criterion known by name, so that everything measures and shows it.

    Parameters
    ----------
    criterion : Criterion

    Returns
    -------
    Criterion
        The same.

    See Also
    --------
    evenhand.Criterion
    evenhand.Variable

    Examples
    --------
    Whether errors look the same in every group:

    >>> import evenhand as eh
    >>> from evenhand.data.criteria import unregister_criterion
    >>> error = eh.Variable("r", "error", of=("s", "y"), value=lambda s, y: y - s)
    >>> _ = eh.register_criterion(eh.Criterion("errors", (), ("r",), variables=(error,)))
    >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
    >>> list(eh.audit(data.y, data.s, sensitive_features=data.a).measures)
    ['independence', 'separation', 'sufficiency', 'errors']
    >>> unregister_criterion("errors")
    """
    if not isinstance(criterion, Criterion):
        raise TypeError(f"`criterion` must be a Criterion, got {criterion!r}.")
    if (CRITERIA | WITH_CONTROLS).get(criterion.name, criterion) != criterion:
        raise InputError(
            "criterion", f"have a name of its own: there is another {criterion.name!r}",
            hint="unregister_criterion(name) removes that.",
        )  # fmt: skip
    for variable in criterion.variables:
        if VARIABLES.get(variable.name, variable) != variable:
            raise InputError(
                "criterion", f"have variables of its own: another {variable.name!r} is known"
            )
    VARIABLES.update({v.name: v for v in criterion.variables})
    CRITERIA[criterion.name] = criterion
    return criterion


def unregister_criterion(name: str) -> None:
    """Forget a criterion and the variables that it alone has brought.

    Parameters
    ----------
    name : str
    """
    gone = CRITERIA.pop(get_criterion(name).name)
    kept = {v.name for c in CRITERIA.values() for v in c.variables}
    for variable in gone.variables:
        if variable.name not in kept:
            VARIABLES.pop(variable.name, None)


def get_criterion(name: str | Criterion) -> Criterion:
    """Look a criterion up by name."""
    if isinstance(name, Criterion):
        return name
    known = CRITERIA | WITH_CONTROLS
    if not isinstance(name, str) or name not in known:
        raise InputError("criterion", f"be one of {', '.join(known)}, got {name!r}")
    return known[name]


def measurable(columns: Collection[str]) -> list[Criterion]:
    """The known criteria that can be measured from a score and these columns."""
    return [c for c in CRITERIA.values() if set(c.needs) <= set(columns)]


def complete(criteria: Iterable[Criterion], columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns, and those that the criteria compute from them."""
    completed = dict(columns)
    for criterion in criteria:
        for variable in criterion.variables:
            if variable.value is not None and variable.name not in completed:
                parts = (columns[name] for name in variable.of)
                completed[variable.name] = np.asarray(variable.value(*parts), dtype=np.float64)
    return completed

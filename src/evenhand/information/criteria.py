"""The three criteria as data: which two conditional entropies of the group each one compares.

==============  ===============  =============================  ===========
criterion       statement        information (nats)             normalizer
==============  ===============  =============================  ===========
independence    S ⟂ A            I(S;A)   = H(A)   − H(A|S)     H(A)
separation      S ⟂ A | Y        I(S;A|Y) = H(A|Y) − H(A|S,Y)   H(A|Y)
sufficiency     Y ⟂ A | S        I(Y;A|S) = H(A|S) − H(A|S,Y)   H(A|S)
==============  ===============  =============================  ===========
"""

from __future__ import annotations

from dataclasses import dataclass

# What a conditional entropy of the group conditions on: () is H(A), ("s", "y") is H(A|S,Y).
Condition = tuple[str, ...]

NOTHING: Condition = ()
SCORE: Condition = ("s",)
TARGET: Condition = ("y",)
BOTH: Condition = ("s", "y")


@dataclass(frozen=True)
class Criterion:
    """Information = H(A | given) − H(A | joint), normalized by H(A | given).

    Attributes
    ----------
    name : str
    given, joint : Condition
        What is conditioned on before and after the variable under test is revealed.
    statement : str
        The independence statement, for tables.
    meaning : str
        The value in words; ``{percent}`` stands for the normalized value.
    """

    name: str
    given: Condition
    joint: Condition
    statement: str
    meaning: str

    @property
    def needs_target(self) -> bool:
        return "y" in self.joint


INDEPENDENCE = Criterion(
    "independence",
    NOTHING,
    SCORE,
    "S ⟂ A",
    "knowing a prediction removes {percent} of the uncertainty about the group",
)
SEPARATION = Criterion(
    "separation",
    TARGET,
    BOTH,
    "S ⟂ A | Y",
    "among people with the same true outcome, knowing a prediction removes {percent} of the "
    "uncertainty about the group",
)
SUFFICIENCY = Criterion(
    "sufficiency",
    SCORE,
    BOTH,
    "Y ⟂ A | S",
    "among people with the same prediction, knowing the true outcome removes {percent} of the "
    "uncertainty about the group",
)

CRITERIA: dict[str, Criterion] = {c.name: c for c in (INDEPENDENCE, SEPARATION, SUFFICIENCY)}


_WORDS = {"s": "score", "y": "target"}


def word_for(variable: str) -> str:
    """What a variable is called in sentences; others than the two keep their names."""
    return _WORDS.get(variable, variable)


def get_criterion(name: str | Criterion) -> Criterion:
    """Look a criterion up by name."""
    if isinstance(name, Criterion):
        return name
    if not isinstance(name, str) or name not in CRITERIA:
        raise ValueError(f"`criterion` must be one of {', '.join(CRITERIA)}, got {name!r}.")
    return CRITERIA[name]

"""The dozen data sets of the atlas: at most 2,000 random rows of each, without and with the group.

In the league of methods that do not need the attribute it is not among the features; in the other
one it is, for all methods alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loaders
from common import SEED, Vector, load
from evenhand.datasets import load_gpa2

# Bounds refer to plain ridge on more rows, so that chance moves them less.
MOST_ROWS, REFERENCE_ROWS = 2_000, 3_000


@dataclass(frozen=True)
class AtlasData:
    """A data set as all methods see it.

    Attributes
    ----------
    X : dict
        By league: features without and with the group.
    y, a : (n,) arrays
    what : str
        Target and groups in words.
    """

    X: dict[str, Vector]
    y: Vector
    a: NDArray[Any]
    what: str


def _plain(loader: Callable[..., Any]) -> Callable[[int], AtlasData]:
    def read(most: int) -> AtlasData:
        blind, known = loader(include_sensitive=False), loader(include_sensitive=True)
        rng = np.random.default_rng(SEED)
        rows = np.sort(rng.permutation(len(blind.y))[:most])
        names = ", ".join(map(str, np.unique(blind.sensitive)))
        return AtlasData(
            {"blind": blind.X[rows], "known": known.X[rows]}, blind.y[rows], blind.sensitive[rows],
            f"{blind.target_name}; {blind.sensitive_name} ({names})",
        )  # fmt: skip

    return read


def _neighborhoods(most: int) -> AtlasData:
    """Illinois by ZIP, as quotes of one ZIP are not independent: its risk from what it is quoted.

    Features are the premiums of the companies that quote nearly everywhere; a missing quote is the
    company's mean.
    """
    import pandas as pd

    found = loaders.load_illinois_quotes(include_sensitive=False)
    frame = pd.DataFrame(found.X, columns=list(found.feature_names))
    company = [name for name in frame.columns if name.startswith("company")]
    long = pd.DataFrame(
        {
            "zip": found.cluster,
            "company": frame[company].to_numpy().argmax(axis=1),
            "premium": found.score,
            "risk": found.y,
            "group": found.sensitive,
        }
    )
    wide = long.pivot_table(index="zip", columns="company", values="premium")
    wide = wide.loc[:, wide.notna().mean() > 0.9]
    wide = wide.fillna(wide.mean())
    ends = long.groupby("zip")[["risk", "group"]].first().loc[wide.index]
    member = (ends["group"].to_numpy() == "minority").astype(float)
    X = wide.to_numpy(dtype=float)
    return AtlasData(
        {"blind": X, "known": np.column_stack([X, member])},
        ends["risk"].to_numpy(dtype=float), ends["group"].to_numpy().astype(np.str_),
        "state_risk of a ZIP; neighborhood (minority, other)",
    )  # fmt: skip


def _stand_in() -> AtlasData:
    data = load("stand-in", True)
    member = (data.a == "a").astype(float)
    X = {"blind": data.X, "known": np.column_stack([data.X, member])}
    return AtlasData(X, data.y, data.a, "made up")


_READERS = {
    "communities": _plain(loaders.load_communities),
    "lsac": _plain(loaders.load_law_school),
    "illinois": _neighborhoods,
    "card": _plain(loaders.load_card),
    "wage2": _plain(loaders.load_wage2),
    "cps78_85": _plain(loaders.load_cps78_85),
    "twoyear": _plain(loaders.load_twoyear),
    "gpa2": _plain(load_gpa2),
    "meps": _plain(loaders.load_meps),
    "admissions": _plain(loaders.load_admissions),
    "health": _plain(loaders.load_health),
    # Claim frequency has an R² of .002 under squared error; the bonus-malus level has one of .17.
    "motor": _plain(partial(loaders.load_belgian_motor, target="bonus_malus")),
}
DATASETS = tuple(_READERS)


@lru_cache(maxsize=3)
def load_atlas(name: str, quick: bool, most: int = MOST_ROWS) -> AtlasData:
    """A data set by name; a quick run has made-up rows under every name."""
    return _stand_in() if quick else _READERS[name](most)

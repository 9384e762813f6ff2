"""The methods and data of the atlas: each rival with the variants it is tuned over, and ours.

A variant is one setting of a method's own options; its strength is swept. A method of several
variants is tuned as ours is: the variant and the strength are chosen on inner folds, for each
outer fold anew. All share the ridge penalty and see standardized columns.

Of each of the dozen data sets at most 2,000 random rows. In the league of methods that do not need
the attribute it is not among the features; in the other one it is, for all methods alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evenhand as eh
import loaders
import rivals
from common import ALPHA, SEED, Vector, load
from evenhand.datasets import load_gpa2

BLIND, KNOWN = "blind", "known"


def _grid(low: float, high: float, count: int, *first: float) -> tuple[float, ...]:
    return (*first, *(float(f"{v:.4g}") for v in np.geomspace(low, high, count)))


WEIGHTS = _grid(0.06, 250, 8, 0.0)
PAIRS = _grid(0.02, 1e4, 9, 0.0)
SHARES = (1.0, *(float(f"{v:.4g}") for v in np.geomspace(0.5, 2e-3, 7)), 0.0)
STEPS = tuple(float(f"{v:.4g}") for v in np.linspace(0, 1, 9))
GAPS = _grid(0.4, 0.02, 5)
TOLERANCES = (1.0, 0.4, 0.2, 0.1, 0.05, 0.02, 0.0)
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


@dataclass(frozen=True)
class Variant:
    """One setting of a method.

    Attributes
    ----------
    name : str
    build : callable
        strength → estimator with ``fit(X, y, sensitive_features=)``.
    strengths : tuple of float
        From no fairness to most.
    criterion : str or None
        The criterion it is trained for; None where it knows none.
    """

    name: str
    build: Callable[[float], Any]
    strengths: tuple[float, ...]
    criterion: str | None = None


@dataclass(frozen=True)
class Method:
    """A row of the atlas.

    Attributes
    ----------
    name, league : str
    variants : tuple of Variant
    ours : bool
    """

    name: str
    league: str
    variants: tuple[Variant, ...]
    ours: bool = False

    def tried(self, criterion: str) -> tuple[Variant, ...]:
        """The variants that are for a criterion, or for none."""
        return tuple(v for v in self.variants if v.criterion in (None, criterion))


def _fair(criterion: str, **options: Any) -> Callable[[float], Any]:
    return lambda weight: eh.FairRidge(criterion, weight, ALPHA, **options)


def _mapped(criterion: str, kind: str, shape: str = "transport") -> Callable[[float], Any]:
    return lambda weight: eh.FairPostprocessor(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), criterion, weight, group_features=kind,
        map=shape, random_state=SEED,
    )  # fmt: skip


def _both(name: str, **options: Any) -> tuple[Variant, ...]:
    return tuple(
        Variant(f"{name}, {criterion}", _fair(criterion, **options), WEIGHTS, criterion)
        for criterion in ("independence", "separation")
    )


def _one(name: str, build: Callable[[float], Any], strengths: tuple[float, ...]) -> Any:
    return (Variant(name, build, strengths),)


def _fairlearn(strength: float) -> Any:
    from rivals import packages

    return packages.Decorrelated(strength)


def _entropic(temperature: float) -> Callable[[float], Any]:
    return lambda step: rivals.EntropicUnaware(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), interpolation=step, temperature=temperature,
        random_state=SEED,
    )  # fmt: skip


def _barycenter(folds: int | None) -> Callable[[float], Any]:
    return lambda step: rivals.WassersteinBarycenter(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), interpolation=step, cv=folds,
        random_state=SEED,
    )  # fmt: skip


def _reweighed(league: str) -> tuple[Variant, ...]:
    """FairReweighing at several widths; its strength is the exponent of the weights."""
    return tuple(
        Variant(f"{density} {width:g}, {league}", partial(_powered, density, width), POWERS)
        for density, width in (("kernel", 0.1), ("kernel", 0.5), ("neighbor", 0.5))
    )


def _powered(density: str, width: float, power: float) -> Any:
    return rivals.FairReweighing(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), density=density, width=width, strength=power
    )


def _binned(bins: int, output: str) -> Callable[[float], Any]:
    return lambda tolerance: rivals.HistogramTransport(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), tolerance=tolerance, n_bins=bins,
        output=output, cv=5, random_state=SEED,
    )  # fmt: skip


OURS = [
    Method("linear", BLIND, _both("linear"), True),
    Method("linear, degree 3", BLIND, _both("linear, degree 3", basis="degree3"), True),
    Method("posterior", BLIND, _both("posterior", group_features="posterior"), True),
    Method("posterior, degree 3", BLIND, _both(
        "posterior, degree 3", group_features="posterior", basis="degree3"), True),
    Method("posterior, transport", BLIND, (Variant(
        "posterior, transport", _mapped("independence", "posterior"), WEIGHTS,
        "independence"),), True),
    Method("attribute", KNOWN, _both("attribute", group_features="attribute"), True),
    Method("attribute, degree 3", KNOWN, _both(
        "attribute, degree 3", group_features="attribute", basis="degree3"), True),
    Method("attribute, lines", KNOWN, tuple(Variant(
        f"attribute, lines, {criterion}", _mapped(criterion, "attribute", "affine"), WEIGHTS,
        criterion) for criterion in ("independence", "separation")), True),
    Method("attribute, transport", KNOWN, (Variant(
        "attribute, transport", _mapped("independence", "attribute"), WEIGHTS,
        "independence"),), True),
]  # fmt: skip
LSPC = tuple(
    variant
    for kappa in ("published", "auto", 300.0)
    for variant in _both(f"LSPC, penalty {kappa}", classifier="lspc", kappa=kappa)
) + _both("LSPC, linear basis", classifier="lspc", basis="linear", kappa="published")
RIVALS = [
    Method("LSPC (2020)", BLIND, LSPC),
    # The nested problem has the objective of FairRidge on raw scores; solving it by warm Newton
    # steps gives the nested fits to .001 (docs/reproduction.md) in a hundredth of the time.
    Method("nested logistic", BLIND, _both("nested logistic", score_map="raw")),
    # The group penalty: the individual one is far behind everywhere (docs/reproduction.md).
    Method("convex pairs (Berk)", BLIND, _one("group", lambda w: rivals.BerkRegressor(
        penalty="group", fairness_weight=w, alpha=ALPHA), PAIRS)),
    Method("reduction (Agarwal)", BLIND, _one("reduction", lambda gap: rivals.ReductionRegressor(
        unfairness=gap, alpha=ALPHA, random_state=SEED), GAPS)),
    Method("fair GLM (Do)", BLIND, _one("fair GLM", lambda w: rivals.DoRegressor(
        fairness_weight=w, alpha=ALPHA), PAIRS)),
    # Its temperature moves R² by less than .006 at a bound, and by less than .002 mostly.
    Method("entropic optimum (Taturyan)", BLIND, _one(
        "entropic, temperature 0.1", _entropic(0.1), STEPS)),
    Method("FairReweighing", BLIND, _reweighed(BLIND)),
    Method("fair ridge (Scutari)", KNOWN, _one("fair ridge", lambda r: rivals.KomiyamaRegressor(
        unfairness=r, alpha=ALPHA), SHARES)),
    Method("Komiyama", KNOWN, _one("Komiyama", lambda r: rivals.KomiyamaRegressor(
        unfairness=r, method="komiyama", alpha=ALPHA), SHARES)),
    # EquiPy is the same method: a test shows that the scores agree.
    Method("barycenter", KNOWN, _one("barycenter, out of fold", _barycenter(5), STEPS)),
    Method("histograms (Xian)", KNOWN, tuple(Variant(
        f"{bins} bins, {output}", _binned(bins, output), TOLERANCES)
        for bins, output in ((20, "draw"), (40, "draw"), (40, "mean")))),
    Method("FairReweighing, attribute", KNOWN, _reweighed(KNOWN)),
    Method("CorrelationRemover", KNOWN, _one("CorrelationRemover", _fairlearn, STEPS)),
]  # fmt: skip
METHODS = {method.name: method for method in [*OURS, *RIVALS]}
VARIANTS = {variant.name: variant for method in METHODS.values() for variant in method.variants}
RECOMMENDED = {BLIND: "FairRegressor, blind", KNOWN: "FairRegressor, known"}


# Data sets ----------------------------------------------------------------------------------------

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

    data = loaders.load_illinois_quotes(include_sensitive=False)
    frame = pd.DataFrame(data.X, columns=list(data.feature_names))
    company = [name for name in frame.columns if name.startswith("company")]
    long = pd.DataFrame(
        {
            "zip": data.cluster,
            "company": frame[company].to_numpy().argmax(axis=1),
            "premium": data.score,
            "risk": data.y,
            "group": data.sensitive,
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

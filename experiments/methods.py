"""The methods compared: what each is called, how it is fitted at a strength, and how it is drawn.

All share the base model (a linear score, squared error, the same ridge penalty), so that only the
treatment of fairness differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import ALPHA, BLACK, BLUE, GRAY, GREEN, ORANGE, PINK, RED, SEED, SKY, YELLOW

import evenhand as eh
from evenhand import baselines

BLIND, ATTRIBUTE = "attribute not needed", "attribute needed"


@dataclass(frozen=True)
class Method:
    """One method.

    Attributes
    ----------
    name : str
    build : callable
        strength → estimator with ``fit(X, y, sensitive_features=)``.
    strengths : tuple of float
        The sweep, from no fairness to most.
    color, marker, dash : str
        How it is drawn.
    league : str
        Whether `predict` needs the attribute.
    ours : bool
        One of this package's recommended fitters, not a published method.
    continuous : bool
        Whether strengths between those of the sweep make sense.
    """

    name: str
    build: Callable[[float], Any]
    strengths: tuple[float, ...]
    color: str
    marker: str
    dash: str = "-"
    league: str = BLIND
    ours: bool = False
    continuous: bool = True

    @property
    def by_fourier(self) -> bool:
        """Measured by the paper's slowest estimator too: its methods, ours, and our rivals."""
        return self.name.startswith(("LSPC", "CVX", "LR", "evenhand", "Wasserstein", "fair ridge"))

    def sweep(self, quick: bool) -> tuple[float, ...]:
        """The strengths, or two of them."""
        if not quick:
            return self.strengths
        return self.strengths[1], self.strengths[len(self.strengths) // 2]


def _grid(low: float, high: float, count: int, *first: float) -> tuple[float, ...]:
    return (*first, *(float(f"{v:.4g}") for v in np.geomspace(low, high, count)))


WEIGHTS = _grid(0.02, 200, 13, 0.0)
PAIR_WEIGHTS = _grid(0.01, 1e4, 13, 0.0)
FEW_WEIGHTS = WEIGHTS[3::2]
SHARES = (1.0, *(float(f"{v:.4g}") for v in np.geomspace(0.7, 1e-3, 12)), 0.0)
STEPS = tuple(float(f"{v:.4g}") for v in np.linspace(0, 1, 14))
GAPS = tuple(float(f"{v:.4g}") for v in np.geomspace(0.6, 0.01, 8))
BOUNDS = tuple(float(f"{v:.4g}") for v in np.geomspace(2.0, 0.2, 6))
N_GRID = 9


def fair(criterion: str, **options: Any) -> Callable[[float], Any]:
    """fairness_weight → FairRidge."""
    return lambda weight: eh.FairRidge(criterion, weight, ALPHA, **options)


def lspc(criterion: str, **options: Any) -> Callable[[float], Any]:
    """fairness_weight → the published method, with its own penalty unless another is given."""
    return fair(criterion, classifier="lspc", **{"kappa": "published", **options})


def _nested(criterion: str) -> Callable[[float], Any]:
    return lambda weight: baselines.NestedLogisticRegressor(
        criterion=criterion, fairness_weight=weight, alpha=ALPHA, max_iter=300, tol=1e-4
    )


def _berk(penalty: str) -> Callable[[float], Any]:
    return lambda weight: baselines.BerkRegressor(
        penalty=penalty, fairness_weight=weight, alpha=ALPHA
    )


def _wasserstein(step: float) -> Any:
    return baselines.WassersteinBarycenter(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), interpolation=step, random_state=SEED
    )


def _unaware(step: float) -> Any:
    return baselines.EntropicUnaware(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), interpolation=step, random_state=SEED
    )


def _post(criterion: str, kind: str, maps: str = "affine") -> Callable[[float], Any]:
    return lambda weight: eh.FairPostprocessor(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA),
        criterion=criterion,
        fairness_weight=weight,
        group_features=kind,
        map=maps,
        random_state=SEED,
    )


def _peer(name: str) -> Callable[[float], Any]:
    def build(strength: float) -> Any:
        # Only here, so that everything else runs where their packages are not installed.
        import peers

        return getattr(peers, name)(strength)

    return build


PAPER = [
    Method("LSPC-ind-linear", lspc("independence", basis="linear"), WEIGHTS,
           SKY, "v", ":"),
    Method("LSPC-ind-quad", lspc("independence"), WEIGHTS, BLUE, "v"),
    Method("LSPC-sep-linear", lspc("separation", basis="linear"), WEIGHTS,
           ORANGE, "^", ":"),
    Method("LSPC-sep-quad", lspc("separation"), WEIGHTS, RED, "^"),
    Method("CVX-group", _berk("group"), PAIR_WEIGHTS, GREEN, "s", "--"),
    Method("CVX-indiv", _berk("individual"), PAIR_WEIGHTS, GRAY, "D", "--"),
]  # fmt: skip
# The same with other penalties of the classifier inside: those of the published method depend on
# units, and a comparison should show a rival at its best. "auto" is this package's own default,
# with bounded scores.
PENALTIES = [
    Method(f"LSPC-{short}-quad, {words}", lspc(criterion, kappa=kappa), WEIGHTS, color, marker,
           dash)
    for kappa, words, dash in ((1e-3, "penalty 0.001", ":"), (300.0, "penalty 300", "--"),
                               ("auto", "auto", "-."))
    for criterion, short, color, marker in (("independence", "ind", BLUE, "v"),
                                            ("separation", "sep", RED, "^"))
]  # fmt: skip
NESTED = [
    Method("LR-ind-quad (nested)", _nested("independence"), FEW_WEIGHTS, SKY, "P", "",
           continuous=False),
    Method("LR-sep-quad (nested)", _nested("separation"), FEW_WEIGHTS, ORANGE, "P", "",
           continuous=False),
]  # fmt: skip
OURS = [
    Method("evenhand-ind", fair("independence"), WEIGHTS, BLACK, "o", "--", ours=True),
    Method("evenhand-sep", fair("separation"), WEIGHTS, BLACK, "o", "-", ours=True),
    Method("evenhand-ind + posterior", fair("independence", group_features="posterior"), WEIGHTS,
           PINK, "o", "--", ours=True),
    Method("evenhand-sep + posterior", fair("separation", group_features="posterior"), WEIGHTS,
           PINK, "o", "-", ours=True),
]  # fmt: skip
# What a quadratic basis leaves is seen by richer estimators; one degree more removes most of it.
CUBIC = [
    Method("evenhand-ind, degree 3", fair("independence", basis="degree3"), WEIGHTS, GREEN, "o",
           "--", ours=True),
    Method("evenhand-sep, degree 3", fair("separation", basis="degree3"), WEIGHTS, GREEN, "o",
           ours=True),
    Method("evenhand-ind + posterior, degree 3", fair(
        "independence", basis="degree3", group_features="posterior"), WEIGHTS, BLUE, "o", "--",
        ours=True),
    Method("evenhand-sep + posterior, degree 3", fair(
        "separation", basis="degree3", group_features="posterior"), WEIGHTS, BLUE, "o", ours=True),
    Method("evenhand-ind + attribute, degree 3", fair(
        "independence", basis="degree3", group_features="attribute"), WEIGHTS, GREEN, "o", "--",
        ATTRIBUTE, True),
    Method("evenhand-sep + attribute, degree 3", fair(
        "separation", basis="degree3", group_features="attribute"), WEIGHTS, GREEN, "o", "-",
        ATTRIBUTE, True),
]  # fmt: skip
PEERS = [
    Method("entropic unaware (Taturyan)", _unaware, STEPS, BLUE, "P", ":"),
    Method("fair GLM (Do)", lambda weight: baselines.DoRegressor(
        fairness_weight=weight, alpha=ALPHA), PAIR_WEIGHTS, GREEN, "D", ":"),
    Method("reduction (Agarwal)", lambda gap: baselines.ReductionRegressor(
        unfairness=gap, alpha=ALPHA, random_state=SEED), GAPS, YELLOW, "X", ":", continuous=False),
    Method("fairlearn GridSearch BGL", _peer("GridSearchLoss"),
           tuple(float(i) for i in range(N_GRID)), GRAY, "<", ":", continuous=False),
    Method("fairlearn ExpGradient BGL", _peer("GradientLoss"), BOUNDS, GRAY, ">", ":",
           continuous=False),
]  # fmt: skip
NEEDING = [
    Method("evenhand-ind + attribute", fair("independence", group_features="attribute"), WEIGHTS,
           BLACK, "o", "--", ATTRIBUTE, True),
    Method("evenhand-sep + attribute", fair("separation", group_features="attribute"), WEIGHTS,
           BLACK, "o", "-", ATTRIBUTE, True),
    Method("Wasserstein, interpolated", _wasserstein, STEPS, BLUE, "s", "-", ATTRIBUTE),
    Method("fair ridge (Scutari)", lambda share: baselines.KomiyamaRegressor(
        unfairness=share, alpha=ALPHA), SHARES, RED, "^", "-", ATTRIBUTE),
    Method("Komiyama", lambda share: baselines.KomiyamaRegressor(
        unfairness=share, method="komiyama", alpha=ALPHA), SHARES, ORANGE, "v", ":", ATTRIBUTE),
    Method("EquiPy", _peer("EquiPy"), STEPS, SKY, "h", ":", ATTRIBUTE),
    Method("fairlearn CorrelationRemover", _peer("Decorrelated"), STEPS, GRAY, "D", "--",
           ATTRIBUTE),
]  # fmt: skip
POSTPROCESSED = [
    Method("post-processed-ind, posterior", _post("independence", "posterior"), WEIGHTS, SKY, "p",
           "--", ours=True),
    Method("post-processed-sep, posterior", _post("separation", "posterior"), WEIGHTS, SKY, "p",
           "-", ours=True),
    Method("post-processed-ind, attribute", _post("independence", "attribute"), WEIGHTS, PINK, "p",
           "--", ATTRIBUTE, True),
    Method("post-processed-sep, attribute", _post("separation", "attribute"), WEIGHTS, PINK, "p",
           "-", ATTRIBUTE, True),
]  # fmt: skip
# The distribution of each group moved to the barycenter of all, as far as the objective asks.
TRANSPORT = [
    Method("evenhand-ind + posterior, transport", _post("independence", "posterior", "transport"),
           WEIGHTS, ORANGE, "*", "--", ours=True),
    Method("evenhand-ind + attribute, transport", _post("independence", "attribute", "transport"),
           WEIGHTS, SKY, "*", "--", ATTRIBUTE, True),
]  # fmt: skip
SUFFICIENCY = [
    Method("LSPC-suf-linear", lspc("sufficiency", basis="linear"), WEIGHTS,
           SKY, "v", ":"),
    Method("LSPC-suf-quad", lspc("sufficiency"), WEIGHTS, BLUE, "v"),
    Method("evenhand-suf", fair("sufficiency"), WEIGHTS, BLACK, "o", ours=True),
    Method("evenhand-suf + posterior", fair("sufficiency", group_features="posterior"), WEIGHTS,
           PINK, "o", ours=True),
    Method("evenhand-suf + attribute", fair("sufficiency", group_features="attribute"), WEIGHTS,
           ORANGE, "o", "--", ATTRIBUTE, True),
]  # fmt: skip
# One of each kind, for a run that only shows that all of it works.
QUICK = [PAPER[3], OURS[1], OURS[3], NEEDING[1], NEEDING[2], TRANSPORT[1]]
COMPARED = [
    *PAPER,
    *PENALTIES,
    *NESTED,
    *OURS,
    *CUBIC,
    *PEERS,
    *NEEDING,
    *TRANSPORT,
    *POSTPROCESSED,
]
METHODS = {m.name: m for m in [*COMPARED, *SUFFICIENCY]}


def available(methods: list[Method]) -> list[Method]:
    """Those whose package is installed."""
    from importlib.util import find_spec

    packages = {"fairlearn": ("fairlearn", "EquiPy"), "equipy": ("EquiPy",)}
    absent = tuple(
        name for package, names in packages.items() if not find_spec(package) for name in names
    )
    return [m for m in methods if not m.name.startswith(absent)]

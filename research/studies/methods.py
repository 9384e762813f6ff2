"""The methods compared: what each is called, how it is fitted at a strength, and how it is drawn.

All share the base model (a linear score, squared error, the same ridge penalty), so that only the
treatment of fairness differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import evenhand as eh
import rivals
from common import ALPHA, BLACK, BLUE, GRAY, GREEN, ORANGE, PINK, RED, SEED, SKY, YELLOW

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
    reset : callable, optional
        (fitted model, strength) → model at that strength, where one fit serves all.
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
    reset: Callable[[Any, float], Any] | None = None

    @property
    def by_fourier(self) -> bool:
        """Measured by the paper's slowest estimator too: its own methods alone."""
        return self in PAPER or self in NESTED

    def sweep(self, quick: bool, dataset: str = "") -> tuple[float, ...]:
        """The strengths, or two of them; on LSAC fewer weights."""
        if quick:
            return self.strengths[1], self.strengths[len(self.strengths) // 2]
        if dataset == "lsac" and self.strengths in (WEIGHTS, LSPC_WEIGHTS):
            return LSAC_WEIGHTS
        return self.strengths


def _grid(low: float, high: float, count: int, *first: float) -> tuple[float, ...]:
    return (*first, *(float(f"{v:.4g}") for v in np.geomspace(low, high, count)))


WEIGHTS = _grid(0.03, 250, 11, 0.0)
# With twice as many where LSPC's path turns, so that no narrow dip of it is passed over.
LSPC_WEIGHTS = tuple(sorted({*WEIGHTS, *_grid(0.707, 10.6, 4)}))
# Those between which all bounds on LSAC lie.
LSAC_WEIGHTS = (0.0, *WEIGHTS[2:10])
PAIR_WEIGHTS = _grid(0.03, 1e4, 15, 0.0)
FEW_WEIGHTS = WEIGHTS[4:11:3]
SHARES = (1.0, *(float(f"{v:.4g}") for v in np.geomspace(0.7, 1e-3, 10)), 0.0)
STEPS = tuple(float(f"{v:.4g}") for v in np.linspace(0, 1, 11))
GAPS = _grid(0.5, 0.01, 6)
BOUNDS = _grid(2.0, 0.3, 4)
N_GRID = 9


def fair(criterion: str, **options: Any) -> Callable[[float], Any]:
    """fairness_weight → FairRidge."""
    return lambda weight: eh.FairRidge(criterion, weight, ALPHA, **options)


def lspc(criterion: str, **options: Any) -> Callable[[float], Any]:
    """fairness_weight → the published method, with its own penalty unless another is given."""
    return fair(criterion, classifier="lspc", **{"kappa": "published", **options})


def _nested(criterion: str) -> Callable[[float], Any]:
    return lambda weight: rivals.NestedLogisticRegressor(
        criterion=criterion, fairness_weight=weight, alpha=ALPHA, max_iter=300, tol=1e-4
    )


def _berk(penalty: str, **options: Any) -> Callable[[float], Any]:
    return lambda weight: rivals.BerkRegressor(
        penalty=penalty, fairness_weight=weight, alpha=ALPHA, **options
    )


def _wasserstein(**options: Any) -> Callable[[float], Any]:
    return lambda step: rivals.WassersteinBarycenter(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), interpolation=step, random_state=SEED,
        **options,
    )  # fmt: skip


def _unaware(**options: Any) -> Callable[[float], Any]:
    return lambda step: rivals.EntropicUnaware(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA), interpolation=step, random_state=SEED,
        **options,
    )  # fmt: skip


def _do(**options: Any) -> Callable[[float], Any]:
    return lambda weight: rivals.DoRegressor(fairness_weight=weight, alpha=ALPHA, **options)


def _reduction(**options: Any) -> Callable[[float], Any]:
    return lambda gap: rivals.ReductionRegressor(
        unfairness=gap, alpha=ALPHA, random_state=SEED, **options
    )


def _interpolated(model: Any, step: float) -> Any:
    return model.set_params(interpolation=step)


def _post(criterion: str, kind: str, maps: str = "affine") -> Callable[[float], Any]:
    return lambda weight: eh.FairPostprocessor(
        eh.FairRidge(fairness_weight=0, alpha=ALPHA),
        criterion=criterion,
        fairness_weight=weight,
        group_features=kind,
        map=maps,
        random_state=SEED,
    )


def _peer(name: str, **options: Any) -> Callable[[float], Any]:
    def build(strength: float) -> Any:
        # Only here, so that everything else runs where their packages are not installed.
        from rivals import packages

        return getattr(packages, name)(strength, **options)

    return build


def _peer_at(model: Any, strength: float) -> Any:
    return model.at(strength)


PAPER = [
    Method("LSPC-ind-linear", lspc("independence", basis="linear"), WEIGHTS,
           SKY, "v", ":"),
    Method("LSPC-ind-quad", lspc("independence"), LSPC_WEIGHTS, BLUE, "v"),
    Method("LSPC-sep-linear", lspc("separation", basis="linear"), WEIGHTS,
           ORANGE, "^", ":"),
    Method("LSPC-sep-quad", lspc("separation"), LSPC_WEIGHTS, RED, "^"),
    Method("CVX-group", _berk("group"), PAIR_WEIGHTS, GREEN, "s", "--"),
    Method("CVX-indiv", _berk("individual"), PAIR_WEIGHTS, GRAY, "D", "--"),
]  # fmt: skip
NESTED = [
    Method("LR-ind-quad (nested)", _nested("independence"), FEW_WEIGHTS, SKY, "P", "",
           continuous=False),
    Method("LR-sep-quad (nested)", _nested("separation"), FEW_WEIGHTS, ORANGE, "P", "",
           continuous=False),
]  # fmt: skip
# The nested problem has the objective of FairRidge on raw scores, which solves it a hundred times
# as fast: the nested method can so be swept and tuned like all others.
RAW = [
    Method("LR-ind-quad", fair("independence", score_map="raw"), WEIGHTS, SKY, "X", ":"),
    Method("LR-sep-quad", fair("separation", score_map="raw"), WEIGHTS, ORANGE, "X", ":"),
]
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
    Method("entropic unaware (Taturyan)", _unaware(), STEPS, BLUE, "P", ":", reset=_interpolated),
    Method("fair GLM (Do)", _do(), PAIR_WEIGHTS, GREEN, "D", ":"),
    Method("reduction (Agarwal)", _reduction(), GAPS, YELLOW, "X", ":", continuous=False),
    Method("fairlearn GridSearch BGL", _peer("GridSearchLoss"),
           tuple(float(i) for i in range(N_GRID)), GRAY, "<", ":", continuous=False,
           reset=_peer_at),
    Method("fairlearn ExpGradient BGL", _peer("GradientLoss"), BOUNDS, GRAY, ">", ":",
           continuous=False),
]  # fmt: skip
NEEDING = [
    Method("evenhand-ind + attribute", fair("independence", group_features="attribute"), WEIGHTS,
           BLACK, "o", "--", ATTRIBUTE, True),
    Method("evenhand-sep + attribute", fair("separation", group_features="attribute"), WEIGHTS,
           BLACK, "o", "-", ATTRIBUTE, True),
    Method("Wasserstein, interpolated", _wasserstein(), STEPS, BLUE, "s", "-", ATTRIBUTE,
           reset=_interpolated),
    Method("fair ridge (Scutari)", lambda share: rivals.KomiyamaRegressor(
        unfairness=share, alpha=ALPHA), SHARES, RED, "^", "-", ATTRIBUTE),
    Method("Komiyama", lambda share: rivals.KomiyamaRegressor(
        unfairness=share, method="komiyama", alpha=ALPHA), SHARES, ORANGE, "v", ":", ATTRIBUTE),
    Method("EquiPy", _peer("EquiPy"), STEPS, SKY, "h", ":", ATTRIBUTE, reset=_peer_at),
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
# What else of a rival can be set, besides its strength: a short sweep, the best of which is shown.
_CRITERIA = (("ind", "independence"), ("sep", "separation"))
VARIANTS: dict[str, dict[str, Callable[[float], Any]]] = {
    **{
        f"LSPC-{short}-quad": {
            f"penalty {kappa}": lspc(criterion, kappa=kappa) for kappa in (300, 1000, "auto")
        }
        for short, criterion in _CRITERIA
    },
    **{
        f"LR-{short}-quad": {
            f"penalty {kappa}": fair(criterion, score_map="raw", kappa=kappa) for kappa in (30, 300)
        }
        for short, criterion in _CRITERIA
    },
    "CVX-group": {"standardized target": _berk("group", standardize=True)},
    "CVX-indiv": {"standardized target": _berk("individual", standardize=True)},
    "entropic unaware (Taturyan)": {
        f"temperature {beta}": _unaware(temperature=beta) for beta in (0.03, 0.01)
    },
    "fair GLM (Do)": {
        "10 segments": _do(n_segments=10),
        "segments of equal length": _do(segments="length"),
    },
    "reduction (Agarwal)": {"20 levels": _reduction(n_levels=20)},
    "fairlearn GridSearch BGL": {"grid limit 5": _peer("GridSearchLoss", limit=5.0)},
    "Wasserstein, interpolated": {"out of fold": _wasserstein(cv=5)},
    "EquiPy": {"sigma 0.01": _peer("EquiPy", sigma=0.01)},
}
# One of each kind, for a run that only shows that all of it works.
QUICK = [PAPER[3], OURS[1], OURS[3], NEEDING[1], NEEDING[2], TRANSPORT[1]]
SHOWN = [*PAPER, *NESTED, *RAW, *OURS, *CUBIC, *PEERS, *NEEDING, *TRANSPORT, *POSTPROCESSED]
TUNED = [
    replace(
        method,
        name=f"{method.name}, {words}",
        build=build,
        strengths=WEIGHTS if method.strengths == LSPC_WEIGHTS else method.strengths,
    )
    for method in SHOWN
    for words, build in VARIANTS.get(method.name, {}).items()
]
COMPARED = [*SHOWN, *TUNED]
METHODS = {m.name: m for m in [*COMPARED, *SUFFICIENCY]}
BEST = ", best penalty"
# On LSAC, where auto takes seven times as long, the methods differ by little and not all are run.
NOT_ON_LSAC = [
    *CUBIC,
    *POSTPROCESSED,
    *(m for m in SHOWN if m.name.startswith(("fairlearn", "EquiPy", "fair GLM", "Komiyama"))),
    *(m for m in TUNED if m.name == "LSPC-ind-quad, penalty 1000"),
    *(m for m in TUNED if not m.name.startswith(("LSPC", "LR", "entropic"))),
]


def run_on(dataset: str, methods: list[Method]) -> list[Method]:
    """Those that are run on a data set."""
    left_out = {m.name for m in NOT_ON_LSAC} if dataset == "lsac" else set()
    return [m for m in methods if m.name not in left_out]


def _families() -> dict[str, list[str]]:
    out = {}
    for method in SHOWN:
        name = method.name
        members = [name, *(f"{name}, {words}" for words in VARIANTS.get(name, {}))]
        if name.startswith("LSPC") and len(members) > 1:
            # The published method is a line of its own.
            out[name] = [name]
            name += BEST
        out[name] = members
    return out


# A line of a table → the methods of which the best is shown.
FAMILIES = _families()


def available(methods: list[Method]) -> list[Method]:
    """Those whose package is installed."""
    from importlib.util import find_spec

    packages = {"fairlearn": ("fairlearn", "EquiPy"), "equipy": ("EquiPy",)}
    absent = tuple(
        name for package, names in packages.items() if not find_spec(package) for name in names
    )
    return [m for m in methods if not m.name.startswith(absent)]

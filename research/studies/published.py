"""Rivals in the measures of their own papers, on their own splits, and our models beside them.

Each paper's data are read as its authors read them, and split by the same seeds, so that what our
implementation gives can be set beside what they printed.

`reweighing`: FairReweighing (Xi, Yu) on Communities and on LSAC: R² and I_sep, half the rows held
out, 20 times. The width is chosen on a quarter of the training rows, by their rule.

`blind`: the entropic optimum (Taturyan, Chzhen, Hebiri) on Communities: mean squared error and the
largest difference between the distribution functions of the scores of non-white communities and of
all; 80 % of the rows to train, 10 % without target to set the multipliers, 10 % to measure, ten
times. The printed numbers are those of their stochastic gradient; ours solve the same problem to
the end. Ours is shown with other options too, and so are the scores of `FairRidge` and
`FairRegressor`, which do not use the 10 % without target.

`transport`: transport between histograms (Xian, Li, Kamath, Zhao) on Communities: as they have it
the scores are the targets themselves, with an error of 0, so that all error is the price of parity.

`several`: two attributes at once on LSAC, by transport one after the other (Hu, Ratz, Charpentier;
EquiPy) and by `FairRegressor` with a limit for each.

Our models are also read off at the unfairness that a rival comes to, on the line through the means
of a sweep; `ahead` is their R² there less the rival's, paired by split. Splits overlap, so its
standard error is a lower limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

import evenhand as eh
import rivals
from common import ALPHA, SEED, Data, Setting, Vector, load, r_squared, run_all
from loaders import load_communities, load_law_school

Row = dict[str, Any]
WEIGHTS = (0.0, *(float(f"{v:.3g}") for v in np.geomspace(0.1, 300, 9)))
LEVELS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
WIDTHS = {"kernel": (0.05, 0.1, 0.2, 0.5, 1.0), "neighbor": (0.1, 0.2, 0.3, 0.5, 0.75, 1.0)}
EPSILONS = {"2^-1": 0.5, "2^-5": 2.0**-5, "2^-6": 2.0**-6, "2^-8": 2.0**-8, "2^-32": 2.0**-32}
TOLERANCES = (0.02, 0.05, 0.1, 0.2)
PRIVACIES = {"no noise": np.inf, "epsilon 1": 1.0, "epsilon 0.1": 0.1}

# What the authors print: tables of hil-se/FairReweighing (result/LSAC.csv and Community.csv),
# the notebook on five algorithms of taturyan/unaware-fair-reg (stochastic gradient, 15,000 steps),
# and communities.ipynb of rxian/fair-regression.
PUBLISHED = [
    ("reweighing", "lsac", "plain", {"mse": 0.009073, "r2": 0.1432, "gap": 0.1265}),
    ("reweighing", "lsac", "kernel", {"mse": 0.009332, "r2": 0.1187, "gap": 0.0012}),
    ("reweighing", "lsac", "neighbor", {"mse": 0.009327, "r2": 0.1192, "gap": 0.0016}),
    ("reweighing", "communities", "plain", {"mse": 0.02073, "r2": 0.6151, "gap": 0.1570}),
    ("reweighing", "communities", "kernel", {"mse": 0.02527, "r2": 0.5307, "gap": 0.0207}),
    ("reweighing", "communities", "neighbor", {"mse": 0.02529, "r2": 0.5302, "gap": 0.0200}),
    ("blind", "communities", "2^-1", {"mse": 0.02116, "gap": 0.4854}),
    ("blind", "communities", "2^-5", {"mse": 0.02463, "gap": 0.3480}),
    ("blind", "communities", "2^-6", {"mse": 0.02975, "gap": 0.2200}),
    ("blind", "communities", "2^-8", {"mse": 0.03739, "gap": 0.1107}),
    ("blind", "communities", "2^-32", {"mse": 0.04038, "gap": 0.0963}),
    ("transport", "communities", "no noise", {"mse": 0.018486, "gap": 0.0641}),
    ("transport", "communities", "epsilon 1", {"mse": 0.018106, "gap": 0.0685}),
    ("transport", "communities", "epsilon 0.1", {"mse": 0.015489, "gap": 0.1628}),
    ("transport", "communities", "barycenter", {"mse": 0.018217, "gap": 0.0971}),
]  # fmt: skip


# Data as the authors read them --------------------------------------------------------------------


@lru_cache
def read(part: str, dataset: str, quick: bool) -> Data:
    """Features, target and groups (1 white or the larger, 0 else) of a paper's data."""
    if quick:
        made = load("stand-in", True)
        y = (made.y - made.y.min()) / np.ptp(made.y)
        a = (made.a == "b").astype(int)
        X = np.column_stack([made.X, a]) if part == "reweighing" else made.X
        return Data(dataset, X, y, a)
    if dataset == "lsac":
        table = load_law_school(columns="agarwal", age="published")
        # One number for the cluster of schools, and not a column for each, as in the paper.
        names = np.array(table.feature_names)
        many = np.char.startswith(names, "cluster=")
        number = table.X[:, many] @ np.arange(1.0, many.sum() + 1)
        X = np.column_stack([table.X[:, ~many], number])
        return Data(dataset, X, table.y / table.y.max(), (table.sensitive == "white").astype(int))
    if part == "transport":
        table = load_communities()
        black = table.X[:, table.feature_names.index("racepctblack")]
        return Data(dataset, table.X, table.y, (black > 0.06).astype(int))
    table = load_communities(race_rule="largest", missing="zero", include_sensitive=False)
    white = (table.sensitive == "white").astype(int)
    if part == "reweighing":
        return Data(dataset, np.column_stack([table.X, white]), table.y, white)
    rows = table.y > 0
    return Data(dataset, table.X[rows], table.y[rows], white[rows])


# Their measures -----------------------------------------------------------------------------------


def information(y: Vector, s: Vector, a: NDArray[Any], seed: int) -> tuple[float, float]:
    """I(A; S | Y) in nats and as a share of H(A | Y), by logistic regressions on other folds.

    The regressions are scikit-learn's on (y, s) and on y as they are, with its default penalty:
    I_sep of the paper.
    """
    both, alone = np.column_stack([y, s]), y[:, None]
    least = min(10, int(np.bincount(a).min()))
    sums = np.zeros(2)
    for train, test in StratifiedKFold(least, shuffle=True, random_state=seed).split(alone, a):
        for i, columns in enumerate((both, alone)):
            model = LogisticRegression(max_iter=1000).fit(columns[train], a[train])
            chance = model.predict_proba(columns[test])[np.arange(len(test)), a[test]]
            sums[i] += np.log(np.clip(chance, 1e-12, 1.0)).sum()
    told = (sums[0] - sums[1]) / len(y)
    return float(told), float(told / (-sums[1] / len(y)))


def farthest(s: Vector, a: NDArray[Any]) -> float:
    """Largest difference between the distribution functions of group 0 and of all."""
    line = np.sort(s)
    mine = np.searchsorted(np.sort(s[a == 0]), line, "right") / np.sum(a == 0)
    return float(np.abs(mine - np.searchsorted(line, line, "right") / len(s)).max())


def farthest_levels(chance: Vector, a: NDArray[Any]) -> float:
    """The same of scores that are drawn, from the chances of their levels."""
    rank = np.cumsum(chance, axis=1)
    return float(np.abs(rank[a == 0].mean(axis=0) - rank.mean(axis=0)).max())


def scored(y: Vector, s: Vector, gap: float) -> Vector:
    return np.array([np.mean((y - s) ** 2), r_squared(s, y), gap])


def recommended(
    criterion: str, X: Vector, y: Vector, a: NDArray[Any], X_new: Vector, quick: bool
) -> Iterator[tuple[str, Vector]]:
    """Scores of new rows by `FairRegressor` at each level, from one search."""
    model = eh.FairRegressor(
        criterion, max_unfairness=1.0, on_unreachable="best", random_state=SEED
    )  # fmt: skip
    search = model._prepare(X, y, a)
    for level in LEVELS[2:4] if quick else LEVELS:
        model.set_params(max_unfairness=level)._choose(*search)
        yield f"FairRegressor {level:g}", model.predict(X_new)


# Units of work: method → (mean squared error, R², unfairness) of one split ------------------------


def reweighing(dataset: str, quick: bool, seed: int) -> dict[str, Any]:
    data = read("reweighing", dataset, quick)
    rows = np.arange(len(data.y))
    if dataset == "lsac" and not quick:
        rows, _ = train_test_split(rows, test_size=0.7, stratify=data.a, random_state=seed)
    train, test = train_test_split(rows, test_size=0.5, random_state=seed)
    X, y, a = data.X, data.y, data.a
    scores = {"plain": LinearRegression().fit(X[train], y[train]).predict(X[test])}
    for density, widths in WIDTHS.items():
        width = choose_width(density, widths, X[train], y[train], a[train], seed)
        for name, base, strength in (
            (density, LinearRegression(), 1.0),
            (f"{density}, ridge", Ridge(alpha=len(train) * ALPHA), 1.0),
            (f"{density}, half the exponent", LinearRegression(), 0.5),
        ):
            model = rivals.FairReweighing(base, density=density, width=width, strength=strength)
            # Ridge is for standardized columns; least squares does not mind.
            inside, outside = _standardize(X[train], X[test])
            scores[name] = model.fit(inside, y[train], sensitive_features=a[train]).predict(outside)
    inside, outside = _standardize(X[train], X[test])
    path = eh.FairRidge("separation", 0.0, ALPHA).path_fitter(
        inside, y[train], sensitive_features=a[train]
    )
    for weight in WEIGHTS:
        scores[f"FairRidge {weight:g}"] = path(weight).predict(outside)
    scores |= dict(recommended("separation", X[train], y[train], a[train], X[test], quick))
    return {
        name: scored(y[test], s, information(y[test], s, a[test], seed)[1])
        for name, s in scores.items()
    }


def choose_width(
    density: str, widths: Sequence[float], X: Vector, y: Vector, a: NDArray[Any], seed: int
) -> float:
    """The width of least I(A; S | Y), and a hundredth of the error, on a quarter of the rows."""
    fit, held = train_test_split(np.arange(len(y)), test_size=0.25, random_state=seed + 17)
    costs = []
    for width in widths:
        model = rivals.FairReweighing(LinearRegression(), density=density, width=width)
        s = model.fit(X[fit], y[fit], sensitive_features=a[fit]).predict(X[held])
        told = max(0.0, information(y[held], s, a[held], seed)[0])
        costs.append(told + 0.01 * np.mean((y[held] - s) ** 2))
    return widths[int(np.argmin(costs))]


def _standardize(X: Vector, X_new: Vector) -> tuple[Vector, Vector]:
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_new)


def blind(dataset: str, quick: bool, seed: int) -> dict[str, Any]:
    data = read("blind", dataset, quick)
    X, y, a = data.X, data.y, data.a
    rows = np.arange(len(y))
    train, rest = train_test_split(rows, test_size=0.2, stratify=a, random_state=seed)
    plain, test = train_test_split(rest, train_size=0.5, stratify=a[rest], random_state=seed)
    low, high = y.min(), y.max()
    scaled = 2.0 * (y - low) / (high - low) - 1.0
    base = LinearRegression().fit(X[train], scaled[train])
    back = lambda s: low + (s + 1.0) * (high - low) / 2.0  # noqa: E731
    s = back(base.predict(X[test]))
    out = {"plain": scored(y[test], s, farthest(s, a[test]))}
    # What chance alone gives in so few rows.
    shuffled = np.random.default_rng(seed).permutation(a[test])
    out["groups shuffled"] = scored(y[test], s, farthest(s, shuffled))
    # Their grid and temperature, which follow the number of rows without target.
    n = len(plain)
    half = int(np.sqrt(n))
    cold = 1.0 / (0.5 * np.sqrt(n) * np.log2(n))
    temperature = cold / float(np.var(base.predict(X[plain])))
    for name, epsilon in EPSILONS.items():
        model = rivals.EntropicUnaware(
            LinearRegression(), tolerance=epsilon, temperature=temperature, bounds=(-1.0, 1.0),
            n_levels=2 * half + 1, group_classifier=LogisticRegression(), max_iter=2000,
            random_state=SEED,
        )  # fmt: skip
        model.fit(X[train], scaled[train], sensitive_features=a[train], X_unlabeled=X[plain])
        chance = model.predict_levels(X[test])
        error = np.square(y[test, None] - back(model.levels_))
        mse = float(np.mean((chance * error).sum(axis=1)))
        gap = farthest_levels(chance, a[test])
        out[name] = np.array([mse, 1.0 - mse / np.var(y[test]), gap])
        if name == "2^-8":
            luck = farthest_levels(chance, shuffled)
            out["groups shuffled, drawn"] = np.array([mse, 1.0 - mse / np.var(y[test]), luck])
    inside, outside = _standardize(X[train], X[test])
    ridge = Ridge(alpha=len(train) * ALPHA)
    model = rivals.EntropicUnaware(ridge, random_state=SEED)
    model.fit(inside, y[train], sensitive_features=a[train])
    for share in np.linspace(0, 1, 6):
        s = model.set_params(interpolation=float(share)).predict(outside)
        out[f"mean {share:g}"] = scored(y[test], s, farthest(s, a[test]))
    for kind, options in {"FairRidge": {}, "posterior": {"group_features": "posterior"}}.items():
        path = eh.FairRidge("independence", 0.0, ALPHA, **options).path_fitter(
            inside, y[train], sensitive_features=a[train]
        )
        for weight in WEIGHTS:
            s = path(weight).predict(outside)
            out[f"{kind} {weight:g}"] = scored(y[test], s, farthest(s, a[test]))
    for name, s in recommended("independence", X[train], y[train], a[train], X[test], quick):
        out[name] = scored(y[test], s, farthest(s, a[test]))
    return out


class Known(RegressorMixin, BaseEstimator):
    """Scores that are there already: the first column."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Known:
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: Any) -> Vector:
        return np.asarray(X)[:, 0]


def transport(dataset: str, quick: bool, seed: int) -> dict[str, Any]:
    data = read("transport", dataset, quick)
    train, test = train_test_split(np.arange(len(data.y)), test_size=0.3, random_state=seed)
    S, y, a = data.y[:, None], data.y, data.a

    def fitted(model: Any) -> Any:
        return model.fit(S[train], y[train], sensitive_features=a[train])

    def measured(model: Any) -> Vector:
        s = model.predict(S[test], sensitive_features=a[test])
        return scored(y[test], s, ks_2samp(s[a[test] == 0], s[a[test] == 1]).statistic)

    def histogram(**options: Any) -> Any:
        model = rivals.HistogramTransport(
            Known(), bounds=(0.0, 1.0), random_state=seed, **options
        )  # fmt: skip
        return fitted(model)

    out = {name: measured(histogram(n_bins=12, privacy=p)) for name, p in PRIVACIES.items()}
    out["barycenter"] = measured(fitted(rivals.WassersteinBarycenter(Known(), random_state=seed)))
    for bins in (36, 60):
        model = histogram(n_bins=bins)
        out[f"{bins} bins"] = measured(model)
        out[f"{bins} bins, mean"] = measured(model.set_params(output="mean"))
    for tolerance in TOLERANCES:
        out[f"60 bins, tolerance {tolerance:g}"] = measured(
            histogram(n_bins=60, tolerance=tolerance)
        )
    for weight in (0.3, 1.0, 3.0, 10.0, 100.0):
        model = eh.FairPostprocessor(
            Known(), "independence", weight, group_features="attribute", map="transport",
            random_state=SEED,
        )  # fmt: skip
        out[f"FairPostprocessor {weight:g}"] = measured(fitted(model))
    return out


def several(dataset: str, quick: bool, fold: int) -> dict[str, Any]:
    """Scores of the rows that a fold holds out, race and sex being known to all methods."""
    X, y, people = _two_attributes(quick)
    crossed = [f"{r} {s}" for r, s in zip(*people.values(), strict=True)]
    folds = StratifiedKFold(2 if quick else 5, shuffle=True, random_state=SEED).split(X, crossed)
    train, test = list(folds)[fold]
    inside, outside = _standardize(X[train], X[test])
    seen = {name: values[train] for name, values in people.items()}
    new = {name: values[test] for name, values in people.items()}
    ridge = Ridge(alpha=len(train) * ALPHA)
    out = {"plain": ridge.fit(inside, y[train]).predict(outside)}
    model = rivals.SequentialBarycenter(ridge, cv=5, random_state=SEED)
    model.fit(inside, y[train], sensitive_features=seen)
    for name, steps in {"both": (1, 1), "race alone": (1, 0), "half of both": (0.5, 0.5)}.items():
        model.set_params(interpolation=steps)
        out[name] = model.predict(outside, sensitive_features=new)
    for level in (0.02,) if quick else (0.02, 0.005):
        ours = eh.FairRegressor(
            "independence", max_unfairness=dict.fromkeys(people, level), attribute="known",
            on_unreachable="best", random_state=SEED,
        )  # fmt: skip
        ours.fit(inside, y[train], sensitive_features=seen)
        out[f"FairRegressor {level:g}"] = ours.predict(outside, sensitive_features=new)
    moved = eh.FairPostprocessor(
        ridge, "independence", 100.0, group_features="attribute", map="transport",
        random_state=SEED,
    )  # fmt: skip
    s = moved.fit(inside, y[train], sensitive_features=seen).predict(
        outside, sensitive_features=new
    )
    out["FairPostprocessor"] = s
    noise = np.random.default_rng(SEED + fold).normal(size=len(s))
    out["FairPostprocessor, noise"] = s + 1e-3 * s.std() * noise
    return {"test": test, **out}


@lru_cache
def _two_attributes(quick: bool) -> tuple[Vector, Vector, dict[str, NDArray[Any]]]:
    if quick:
        made = load("stand-in", True)
        sex = np.where(made.X[:, 1] > 0, "male", "female")
        return np.column_stack([made.X, sex == "male"]), made.y, {"race": made.a, "sex": sex}
    table = load_law_school()
    rows = np.sort(np.random.default_rng(SEED).permutation(len(table.y))[:5_000])
    male = table.X[rows, table.feature_names.index("male")] == 1
    sex = np.where(male, "male", "female")
    return table.X[rows], table.y[rows], {"race": table.sensitive[rows], "sex": sex}


# Tables -------------------------------------------------------------------------------------------

# part → (function of a unit, data sets, seeds of the splits)
PARTS = {
    "reweighing": (reweighing, ("lsac", "communities"), range(1, 21)),
    "blind": (blind, ("communities",), range(1, 11)),
    "transport": (transport, ("communities",), range(33, 83)),
}
# Whose sweeps are read off at the unfairness of which rivals; R² where the target is predicted.
SWEEPS = {
    "reweighing": ("FairRidge", "FairRegressor"),
    "blind": ("FairRidge", "posterior", "FairRegressor", "mean"),
    "transport": ("FairPostprocessor",),
}
RIVALS = {
    "reweighing": ("kernel", "kernel, ridge", "neighbor", "neighbor, ridge"),
    "blind": tuple(EPSILONS),
    "transport": (
        "no noise",
        "barycenter",
        "36 bins",
        "60 bins",
        *(f"60 bins, tolerance {t:g}" for t in TOLERANCES),
    ),
}
OURS = ("FairRidge", "posterior", "FairRegressor", "FairPostprocessor")


def table(setting: Setting) -> Iterator[Row]:
    began = time.process_time()
    for part, (function, datasets, seeds) in PARTS.items():
        if not setting.wants(part):
            continue
        for dataset in datasets:
            yield from _printed(part, dataset)
            chosen = setting.choose(list(seeds), list(seeds)[:2])
            units = [(dataset, setting.quick, seed) for seed in chosen]
            splits = run_all(setting, function, units, f"{part}, {dataset}")
            values = {name: np.array([s[name] for s in splits]) for name in splits[0]}
            for name, each in values.items():
                yield _row(part, dataset, _side(name), name, each.mean(axis=0), len(chosen),
                           each.std(axis=0))  # fmt: skip
            for rival in RIVALS[part]:
                for sweep in SWEEPS[part]:
                    yield from _matched(part, dataset, rival, sweep, values)
    if setting.wants("several"):
        yield from _several(setting)
    setting.facts["compute_seconds"] = round(time.process_time() - began, 1)


def _side(name: str) -> str:
    return "evenhand" if name.startswith(OURS) else "ours"


def _row(
    part: str, dataset: str, who: str, method: str, values: Any, splits: int, spread: Any = None,
    **more: Any,
) -> Row:  # fmt: skip
    names = ("mse", "r2", "gap")
    row: Row = {"part": part, "dataset": dataset, "who": who, "method": method}
    row |= {name: float(v) for name, v in zip(names, values, strict=True)}
    row |= {f"{name}_sd": "" for name in names}
    if spread is not None:
        row |= {f"{name}_sd": float(v) for name, v in zip(names, spread, strict=True)}
    return (
        row | {"splits": splits, "at": "", "ahead": "", "stderr": "", "race": "", "sex": ""} | more
    )


def _printed(part: str, dataset: str) -> Iterator[Row]:
    for its_part, its_dataset, method, values in PUBLISHED:
        if (its_part, its_dataset) == (part, dataset):
            numbers = [values.get(name, np.nan) for name in ("mse", "r2", "gap")]
            yield _row(part, dataset, "published", method, numbers, len(PARTS[part][2]))


def _matched(
    part: str, dataset: str, rival: str, sweep: str, values: dict[str, Vector]
) -> Iterator[Row]:
    """A sweep of ours where its mean unfairness is that of a rival; nothing if it never is."""
    steps = [v for name, v in values.items() if name.rsplit(" ", 1)[0] == sweep]
    means = np.array([step.mean(axis=0) for step in steps])
    level = values[rival].mean(axis=0)[2]
    best = None
    for j in range(len(steps) - 1):
        u = means[j, 2], means[j + 1, 2]
        if (u[0] <= level) != (u[1] <= level):
            t = (u[0] - level) / (u[0] - u[1])
            each = (1 - t) * steps[j] + t * steps[j + 1]
            if best is None or each[:, 0].mean() < best[:, 0].mean():
                best = each
    # A sweep that is below the level everywhere meets it at no price.
    below = [s for s, m in zip(steps, means, strict=True) if m[2] <= level]
    for each in below:
        if best is None or each[:, 0].mean() < best[:, 0].mean():
            best = each
    if best is None:
        return
    ahead = best[:, 1] - values[rival][:, 1]
    yield _row(
        part, dataset, _side(sweep), sweep, best.mean(axis=0), len(best), best.std(axis=0),
        at=rival, ahead=float(ahead.mean()), stderr=float(ahead.std(ddof=1) / np.sqrt(len(ahead))),
    )  # fmt: skip


def _several(setting: Setting) -> Iterator[Row]:
    units = [("lsac", setting.quick, fold) for fold in range(setting.choose(5, 2))]
    folds = run_all(setting, several, units, "several attributes")
    _, y, people = _two_attributes(setting.quick)
    for name in folds[0]:
        if name == "test":
            continue
        s = np.empty(len(y))
        for fold in folds:
            s[fold["test"]] = fold[name]
        told = {k: eh.independence(y, s, sensitive_features=v) for k, v in people.items()}
        both = eh.independence(y, s, sensitive_features=people)
        # In few rows `auto` looks at values that repeat; from 5,000 on it sorts scores into bins.
        for k, v in people.items():
            each = [
                eh.independence(y[f["test"]], f[name], sensitive_features=v[f["test"]])
                for f in folds
            ]
            told[f"{k}_by_fold"] = float(np.mean(each))
        yield _row("several", "lsac", _side(name), name, scored(y, s, both), len(folds), **told)

"""FairMLPRegressor: a network whose predictions carry little information about the group.

minimize  mean ω(y − s)² / Var(y) + fairness_weight · Ĩ(s),   s = network(x)
"""

from __future__ import annotations

import copy
import math
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from .._core.arrays import Vector
from .._core.validation import (
    InputError,
    check_choice,
    check_index,
    check_nonnegative,
    check_positive_integer,
    is_number,
    refuse_unreal,
)
from ..data.criteria import get_criterion
from ..data.groups import Groups, resolve_groups
from ..data.weights import check_weight, scale_to_count
from ..training.linear import refuse_missing_groups
from .loss import CLASSIFIERS, FairnessLoss

# Steps of gradient descent, and epochs at least, under "auto".
_STEPS, _LEAST_EPOCHS = 1500, 50
# Fewer rows than this set aside say nothing about fairness.
_LEAST_CHECK = 100
_ACCEPTS: dict[str, Any] = {"accept_sparse": ["csr", "csc"], "dtype": [np.float64, np.float32]}


class FairMLPRegressor(RegressorMixin, BaseEstimator):
    """A multilayer perceptron with a fairness term.

    Minimizes ``mean w(y − s)²/Var(y) + fairness_weight·Ĩ`` over mini-batches, Ĩ the normalized
    information of the criterion in the batch; see :class:`evenhand.torch.FairnessLoss`.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
    fairness_weight : float
        1 means that one point of R² is worth one point of normalized information.
    hidden : tuple of int
        Sizes of the hidden layers.
    alpha : float
        Weight decay of AdamW.
    epochs : "auto" or int
        At most; fewer where the objective on rows set aside stops falling. "auto" is as many as
        make 1,500 steps, and at least 50.
    batch_size : int
        Small batches overstate unfairness, which is then over-corrected.
    learning_rate : float
        At its highest; it falls along a cosine.
    plain, ramp : float
        Shares of the steps without the fairness term, and over which it rises to its weight.
    validation_fraction : float
        Share of the rows set aside for early stopping; 0 for none. Rows are set aside within each
        group.
    patience : "auto" or int
        Epochs without a better objective on those rows after which training ends; "auto" is a
        fifth of `epochs`.
    classifier : {"batch", "running"}
        Of :class:`FairnessLoss`.
    basis : {"quadratic", "linear", "degree3"}
    device : str
        Where to train; predictions are made on the CPU.
    random_state : int, RandomState or None
        Initial weights, rows set aside and order of the rows. With an integer a fit repeats
        exactly, on the same machine and number of threads.

    Attributes
    ----------
    network_ : torch.nn.Sequential
        From standardized features to standardized targets, in float64.
    history_ : dict of lists
        The learning curve by epoch: squared error over Var(y), and unfairness, in training and on
        the rows set aside.
    n_iter_ : int
        Epochs.
    unfairness_ : float
        Ĩ on the training rows (NaN if fitted without `sensitive_features`).
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.torch import FairMLPRegressor
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 600)
    >>> X = rng.normal(size=(600, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=600)
    >>> fair = FairMLPRegressor("independence", 10, epochs=20, random_state=0)
    >>> fair.fit(X, y, sensitive_features=a).predict(X).shape
    (600,)
    """

    __metadata_request__fit: ClassVar = {"sensitive_features": True}

    def __init__(
        self,
        criterion: str = "independence",
        fairness_weight: float = 1.0,
        hidden: tuple[int, ...] = (64, 64),
        alpha: float = 0.01,
        *,
        epochs: int | str = "auto",
        batch_size: int = 1024,
        learning_rate: float = 5e-3,
        plain: float = 0.2,
        ramp: float = 0.2,
        validation_fraction: float = 0.1,
        patience: int | str = "auto",
        classifier: str = "batch",
        basis: str = "quadratic",
        device: str = "cpu",
        random_state: Any = None,
    ):
        self.criterion = criterion
        self.fairness_weight = fairness_weight
        self.hidden = hidden
        self.alpha = alpha
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.plain = plain
        self.ramp = ramp
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.classifier = classifier
        self.basis = basis
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = False
        return tags

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None):
        """Train the network.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            A sparse one is made dense.
        y : (n,) array
        sensitive_features : array, series or frame
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness.
        sample_weight : (n,) array, optional

        Returns
        -------
        self
        """
        self._check_parameters()
        refuse_unreal(X=X, y=y)
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )  # fmt: skip
        X, y = validate_data(self, X, y, y_numeric=True, **_ACCEPTS)
        X = X.toarray() if issparse(X) else X
        n = len(X)
        weight = check_weight(sample_weight, n)
        weight = None if weight is None else scale_to_count(weight)
        groups = None
        if sensitive_features is not None:
            groups = resolve_groups(sensitive_features, n_rows=n, sample_weight=weight)
            if groups.codes is None:
                raise InputError(
                    "sensitive_features", "be groups, not probabilities of them, for a network",
                    hint="FairRidge and FairPostprocessor take a Proxy.",
                )  # fmt: skip
        refuse_missing_groups(sensitive_features is None and self.fairness_weight > 0)
        return self._train(X, y.astype(np.float64), groups, weight)

    def _train(
        self, X: NDArray[Any], y: Vector, groups: Groups | None, weight: Vector | None
    ) -> FairMLPRegressor:
        self._center, self._scale = _standardizer(X, weight)
        y_center, y_scale = _standardizer(y[:, None], weight)
        self._y_center, self._y_scale = float(y_center[0]), float(y_scale[0])
        codes = np.full(len(y), -1)
        if groups is not None:
            assert groups.codes is not None
            known = slice(None) if groups.known is None else groups.known
            codes[known] = groups.codes
        z = ((y - self._y_center) / self._y_scale).astype(np.float32)
        omega = None if weight is None else weight.astype(np.float32)

        def put(column: Any) -> Any:
            return None if column is None else torch.from_numpy(column).to(self.device)

        rows = Rows(*map(put, (self._standardized(X).float().numpy(), z, codes, omega)))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        aside, kept = self._set_aside(codes, seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = make_network(X.shape[1], tuple(self.hidden)).to(self.device)
        fairness = None
        if groups is not None:
            fairness = FairnessLoss(self.criterion, groups.n_groups, self.classifier, self.basis)
        self.history_ = train(
            network, rows.take(kept), rows.take(aside) if len(aside) else None, self, fairness,
            generator,
        )  # fmt: skip
        # Trained in float32, which has noise enough; scores of a row should not depend on those
        # that it is scored with.
        self.network_ = network.cpu().double().eval()
        self.n_iter_ = len(self.history_["loss"])
        self.unfairness_ = float("nan")
        if groups is not None:
            judge = FairnessLoss(self.criterion, groups.n_groups, basis=self.basis)
            exact = None if weight is None else torch.from_numpy(weight)
            value = judge(
                self._score(X), rows.groups.cpu(), torch.from_numpy(y), sample_weight=exact
            )
            self.unfairness_ = float(value)
        return self

    def _score(self, X: NDArray[Any]) -> Tensor:
        """Standardized scores."""
        with torch.no_grad():
            return self.network_(self._standardized(X))[:, 0]

    def _set_aside(self, codes: NDArray[Any], seed: int) -> tuple[Any, Any]:
        """Rows to check on, from each group in proportion; and the others."""
        n = len(codes)
        if self.validation_fraction * n < _LEAST_CHECK:
            return np.empty(0, dtype=np.intp), np.arange(n)
        rng = np.random.default_rng(seed)
        order = rng.permutation(n)
        order = order[np.argsort(codes[order], kind="stable")]
        stride = max(2, round(1.0 / self.validation_fraction))
        aside = np.sort(order[int(rng.integers(stride)) :: stride])
        kept = np.ones(n, dtype=bool)
        kept[aside] = False
        return aside, np.flatnonzero(kept)

    def _standardized(self, X: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy((X - self._center) / self._scale)

    def predict(self, X: Any) -> NDArray[Any]:
        """Scores of rows.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self)
        refuse_unreal(X=X)
        X = validate_data(self, X, reset=False, **_ACCEPTS)
        X = X.toarray() if issparse(X) else X
        score = self._score(X).numpy()
        return (self._y_center + self._y_scale * score).astype(X.dtype, copy=False)

    def _check_parameters(self) -> None:
        get_criterion(self.criterion)
        for name in ("fairness_weight", "alpha"):
            check_nonnegative(name, getattr(self, name))
        if not is_number(self.learning_rate, 0.0) or self.learning_rate == 0:
            raise InputError("learning_rate", "be a positive number", repr(self.learning_rate))
        check_positive_integer("batch_size", self.batch_size)
        for name in ("epochs", "patience"):
            if getattr(self, name) != "auto":
                check_positive_integer(name, getattr(self, name))
        for name in ("plain", "ramp", "validation_fraction"):
            value = getattr(self, name)
            if not is_number(value, 0.0) or value >= 1:
                raise InputError(name, "lie in [0, 1)", repr(value))
        if self.plain + self.ramp >= 1:
            share = "leave a share of the steps for the full fairness weight"
            raise InputError(
                "plain", share, f"{self.plain!r} and {self.ramp!r}", where="and `ramp`"
            )
        sizes = self.hidden if isinstance(self.hidden, tuple | list) else [0]
        if not all(isinstance(size, Integral) and size >= 1 for size in sizes):
            raise InputError("hidden", "be a tuple of positive integers", repr(self.hidden))
        check_choice("classifier", self.classifier, CLASSIFIERS)
        if str(self.device).startswith("cuda") and not torch.cuda.is_available():
            raise InputError(
                "device", "be 'cpu' here", f"{self.device!r}: PyTorch sees no CUDA device",
                "install a build of PyTorch for CUDA, and a driver.",
            )  # fmt: skip


def _standardizer(columns: NDArray[Any], weight: Vector | None) -> tuple[Vector, Vector]:
    """Weighted means and spreads; 1 for constant columns."""
    columns = columns.astype(np.float64, copy=False)
    mean = np.average(columns, axis=0, weights=weight)
    spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight))
    flat = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return mean, np.where(flat, 1.0, spread)


# ------------------------------------------------------------------------------------------------
# How a network is trained: plainly first, then with the fairness term let in, then to rest.
#
#     minimize [ mean ω(y − s)² / Var(y) + λ_t·Ĩ(s) ] / (1 + λ_t)
#
# λ_t is 0 for a first share of the steps, rises to the fairness weight over a second one and stays
# there, while the learning rate falls along a cosine. Fairness asked for at once is bought with
# scores of one value, from which no gradient leads away. What is kept is the running mean of the
# weights, at the epoch whose objective on rows set aside is the least.


# Share of the newest weights in their running mean.
_NEWEST = 0.05
# Share of the steps over which the learning rate rises.
_RISE = 0.03
# The learning curve, one number an epoch.
CURVE = (
    "loss", "unfairness", "held_out_loss", "held_out_unfairness", "held_out_objective",
    "fairness_weight", "learning_rate",
)  # fmt: skip
# Norm that a gradient is cut to: the fairness term of an odd batch can be steep.
_LONGEST = 1.0


def fairness_share(share: float, plain: float, ramp: float) -> float:
    """Share of the fairness weight at a share of the steps."""
    if share < plain:
        return 0.0
    return min(1.0, (share - plain) / ramp) if ramp > 0 else 1.0


def rate_share(share: float) -> float:
    """Share of the learning rate at a share of the steps."""
    return min(1.0, share / _RISE) * 0.5 * (1.0 + math.cos(math.pi * share))


class Rows(NamedTuple):
    """Standardized features and targets, group numbers (−1: not known), weights of mean 1."""

    X: Tensor
    y: Tensor
    groups: Tensor
    weight: Tensor | None

    def take(self, rows: NDArray[np.intp]) -> Rows:
        index = torch.from_numpy(rows)
        weight = None if self.weight is None else self.weight[index]
        return Rows(self.X[index], self.y[index], self.groups[index], weight)


def make_network(n_features: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Hidden layers with smooth bends, and one output."""
    layers: list[nn.Module] = []
    width = n_features
    for size in hidden:
        layers += [nn.Linear(width, size), nn.SiLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))


def train(
    network: nn.Module, train_rows: Rows, check_rows: Rows | None, model: FairMLPRegressor,
    fairness: FairnessLoss | None, generator: torch.Generator,
) -> dict[str, list[float]]:  # fmt: skip
    """Train in place, by the parameters of a model; the learning curve, one number an epoch."""
    fairness_weight, rate = float(model.fairness_weight), float(model.learning_rate)
    optimizer = torch.optim.AdamW(_decayed(network, float(model.alpha)), lr=rate, betas=(0.9, 0.99))
    mean = copy.deepcopy(network)
    per_epoch = max(1, round(len(train_rows.y) / model.batch_size))
    epochs = model.epochs
    if isinstance(epochs, str):
        epochs = max(_LEAST_EPOCHS, -(-_STEPS // per_epoch))
    patience = max(1, epochs // 5) if isinstance(model.patience, str) else model.patience
    total, step = epochs * per_epoch, 0
    curve: dict[str, list[float]] = {name: [] for name in CURVE}
    best, kept, waited = math.inf, copy.deepcopy(mean.state_dict()), 0
    judge = copy.deepcopy(fairness)
    for _ in range(epochs):
        losses, values = [], []
        for rows in np.array_split(_mixed(train_rows.groups, generator), per_epoch):
            share = step / total
            weight = fairness_weight * fairness_share(share, model.plain, model.ramp)
            for group in optimizer.param_groups:
                group["lr"] = rate * rate_share(share)
            loss, value = _measure(network, train_rows.take(rows), fairness if weight else None)
            objective = loss if value is None else (loss + weight * value) / (1.0 + weight)
            optimizer.zero_grad(set_to_none=True)
            objective.backward()
            nn.utils.clip_grad_norm_(network.parameters(), _LONGEST)
            optimizer.step()
            step += 1
            _follow(mean, network, max(_NEWEST, 1.0 / step))
            losses.append(float(loss.detach()))
            values += [] if value is None else [float(value.detach())]
        judged = _judge(mean, check_rows, judge, fairness_weight)
        unfairness = float(np.mean(values)) if values else math.nan
        numbers = float(np.mean(losses)), unfairness, *judged, weight
        for name, number in zip(CURVE, (*numbers, optimizer.param_groups[0]["lr"]), strict=True):
            curve[name].append(number)
        if check_rows is None or weight < fairness_weight:
            continue
        waited += 1
        if judged[2] < best:
            best, kept, waited = judged[2], copy.deepcopy(mean.state_dict()), 0
        if waited > patience:
            break
    network.load_state_dict(mean.state_dict() if check_rows is None else kept)
    return curve


def _measure(
    network: nn.Module, rows: Rows, fairness: FairnessLoss | None
) -> tuple[Tensor, Tensor | None]:
    """Squared error, and Ĩ if it is asked for."""
    score = network(rows.X)[:, 0]
    squares = (rows.y - score) ** 2
    loss = squares.mean() if rows.weight is None else (rows.weight * squares).mean()
    if fairness is None:
        return loss, None
    return loss, fairness(score, rows.groups, rows.y, sample_weight=rows.weight)


def _decayed(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Intercepts are not shrunk."""
    matrices = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0}]  # fmt: skip


def _mixed(groups: Tensor, generator: torch.Generator) -> np.ndarray:
    """Rows in an order in which every stretch has its share of each group."""
    codes = groups.cpu().numpy()
    place = np.empty(len(codes))
    shuffled = torch.randperm(len(codes), generator=generator).numpy()
    offset = torch.rand(int(codes.max(initial=0)) + 2, generator=generator).numpy()
    for code in np.unique(codes):
        own = shuffled[codes[shuffled] == code]
        place[own] = (np.arange(len(own)) + offset[code + 1]) / len(own)
    return np.argsort(place, kind="stable")


@torch.no_grad()
def _follow(mean: nn.Module, network: nn.Module, share: float) -> None:
    for slow, fast in zip(mean.parameters(), network.parameters(), strict=True):
        slow.lerp_(fast, share)


@torch.no_grad()
def _judge(
    network: nn.Module, rows: Rows | None, fairness: FairnessLoss | None, weight: float
) -> tuple[float, float, float]:
    """Loss, unfairness and objective on rows set aside, at the full weight."""
    if rows is None:
        return (math.nan,) * 3
    loss, value = _measure(network, rows, fairness)
    if value is None:
        return float(loss), math.nan, float(loss)
    return float(loss), float(value), float(loss) + weight * float(value)

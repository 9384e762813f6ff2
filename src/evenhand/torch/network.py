"""FairMLPRegressor: a network whose predictions carry little information about the group.

minimize  mean ω(y − s)² / Var(y) + fairness_weight · Ĩ(s),   s = network(x)
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .._core.arrays import Vector
from .._core.validation import check_index, refuse_unreal
from ..data.criteria import get_criterion
from ..data.groups import Groups, resolve_groups
from ..data.weights import check_weight
from .loss import CLASSIFIERS, FairnessLoss
from .training import Rows, Schedule, make_network, train

# Steps of gradient descent, and epochs at least, under "auto".
_STEPS, _LEAST_EPOCHS = 1500, 50
# Fewer rows than this set aside say nothing about fairness.
_LEAST_CHECK = 100


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
        X, y = validate_data(
            self, X, y, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32],
            y_numeric=True,
        )  # fmt: skip
        X = X.toarray() if issparse(X) else X
        n = len(X)
        weight = check_weight(sample_weight, n)
        if weight is not None:
            weight = weight * (n / weight.sum())
        groups = None
        if sensitive_features is not None:
            groups = resolve_groups(sensitive_features, n_rows=n, sample_weight=weight)
            if groups.codes is None:
                raise ValueError(
                    "`sensitive_features` must be groups, not probabilities of them, for a "
                    "network. Hint: FairRidge and FairPostprocessor take a Proxy."
                )
        elif self.fairness_weight > 0:
            raise ValueError(
                "`sensitive_features` must be given when `fairness_weight` > 0, got None. Hint: "
                "pass sensitive_features=... to fit; inside a Pipeline or GridSearchCV first call "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
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
        rows = Rows(
            self._standardized(X).float(),
            torch.from_numpy(((y - self._y_center) / self._y_scale).astype(np.float32)),
            torch.from_numpy(codes),
            None if weight is None else torch.from_numpy(weight.astype(np.float32)),
        )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        aside, kept = self._set_aside(codes, seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = make_network(X.shape[1], tuple(self.hidden)).to(self.device)
        fairness = None
        if groups is not None:
            fairness = FairnessLoss(
                self.criterion, groups.n_groups, self.classifier, self.basis
            )  # fmt: skip
        epochs, patience = self.epochs, self.patience
        if epochs == "auto":
            per_epoch = max(1, round(len(kept) / self.batch_size))
            epochs = max(_LEAST_EPOCHS, -(-_STEPS // per_epoch))
        epochs = int(epochs)
        patience = max(1, epochs // 5) if patience == "auto" else int(patience)
        schedule = Schedule(
            epochs, int(self.batch_size), float(self.learning_rate), float(self.alpha),
            float(self.plain), float(self.ramp), patience,
        )  # fmt: skip
        rows = Rows(*(None if c is None else c.to(self.device) for c in
                      (rows.X, rows.y, rows.groups, rows.weight)))  # type: ignore[arg-type]  # fmt: skip
        self.history_ = train(
            network, rows.take(torch.from_numpy(kept)),
            rows.take(torch.from_numpy(aside)) if len(aside) else None,
            schedule, fairness, float(self.fairness_weight), generator,
        )  # fmt: skip
        # Trained in float32, which has noise enough; scores of a row should not depend on those
        # that it is scored with.
        self.network_ = network.cpu().double().eval()
        self.n_iter_ = len(self.history_["loss"])
        self.unfairness_ = float("nan")
        if groups is not None:
            with torch.no_grad():
                score = self.network_(self._standardized(X))[:, 0]
            judge = FairnessLoss(self.criterion, groups.n_groups, basis=self.basis)
            self.unfairness_ = float(
                judge(score, torch.from_numpy(codes), torch.from_numpy(y),
                      sample_weight=None if weight is None else torch.from_numpy(weight))
            )  # fmt: skip
        return self

    def _set_aside(self, codes: NDArray[Any], seed: int) -> tuple[Any, Any]:
        """Rows to check on, from each group in proportion; and the others."""
        n = len(codes)
        if self.validation_fraction * n < _LEAST_CHECK:
            return np.empty(0, dtype=np.intp), np.arange(n)
        rng = np.random.default_rng(seed)
        order = rng.permutation(n)
        order = order[np.argsort(codes[order], kind="stable")]
        every = max(2, round(1.0 / self.validation_fraction))
        aside = np.sort(order[int(rng.integers(every)) :: every])
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
        X = validate_data(
            self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], reset=False
        )
        X = X.toarray() if issparse(X) else X
        with torch.no_grad():
            score = self.network_(self._standardized(X))[:, 0].numpy()
        return (self._y_center + self._y_scale * score).astype(X.dtype, copy=False)

    def _check_parameters(self) -> None:
        get_criterion(self.criterion)
        for name in ("fairness_weight", "alpha"):
            value = getattr(self, name)
            if not _is_real(value) or not 0 <= float(value) < np.inf:
                raise ValueError(f"`{name}` must be a nonnegative number, got {value!r}.")
        if not _is_real(self.learning_rate) or not 0 < float(self.learning_rate) < np.inf:
            raise ValueError(
                f"`learning_rate` must be a positive number, got {self.learning_rate!r}."
            )
        for name in ("epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if value == "auto" and name != "batch_size":
                continue
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer, got {value!r}.")
        for name in ("plain", "ramp", "validation_fraction"):
            value = getattr(self, name)
            if not _is_real(value) or not 0 <= float(value) < 1:
                raise ValueError(f"`{name}` must lie in [0, 1), got {value!r}.")
        if self.plain + self.ramp >= 1:
            raise ValueError(
                "`plain` and `ramp` must leave a share of the steps for the full fairness weight, "
                f"got {self.plain!r} and {self.ramp!r}."
            )
        good = isinstance(self.hidden, tuple | list) and all(
            isinstance(size, Integral) and size >= 1 for size in self.hidden
        )
        if not good:
            raise ValueError(f"`hidden` must be a tuple of positive integers, got {self.hidden!r}.")
        if self.classifier not in CLASSIFIERS:
            raise ValueError(
                f"`classifier` must be one of {', '.join(CLASSIFIERS)}, got {self.classifier!r}."
            )
        if str(self.device).startswith("cuda") and not torch.cuda.is_available():
            raise ValueError(
                f"`device` must be 'cpu' here, got {self.device!r}: PyTorch sees no CUDA device. "
                "Hint: install a build of PyTorch for CUDA, and a driver."
            )


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _standardizer(columns: NDArray[Any], weight: Vector | None) -> tuple[Vector, Vector]:
    """Weighted means and spreads; 1 for constant columns."""
    columns = columns.astype(np.float64, copy=False)
    mean = np.average(columns, axis=0, weights=weight)
    spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight))
    flat = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return mean, np.where(flat, 1.0, spread)

"""`boost`: XGBoost with the fair objective, on rows that are on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._core.shards import Workers, joined, run
from .._core.validation import check_column, check_nonnegative, check_positive_integer
from ..boosting import PLAIN_ROUNDS, get_loss, objective
from ..data.groups import resolve_groups
from ..training.penalty import FairnessRegularizer
from .fitting import run_on
from .workers import NUMBERS, Read, WorkerLostError, lost


def boost(
    params: Mapping[str, Any],
    data: Any,
    client_or_spark: Any,
    *,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any = None,
    features: Any = None,
    given: Any = None,
    criterion: str = "independence",
    fairness_weight: float = 1.0,
    classifier: str = "logistic",
    loss: str = "squared",
    num_boost_round: int = 100,
    plain_rounds: int = PLAIN_ROUNDS,
    library: str = "xgboost",
    timeout: float = 300.0,
) -> Any:
    """Train XGBoost with the objective of :func:`evenhand.boosting.objective` on a cluster.

    Every worker calls `xgboost.train` on its own rows. XGBoost adds up its histograms, and the
    objective the sums of its fairness term, through the same `collective`.

    Parameters
    ----------
    params : mapping
        Of `xgboost.train`, without an objective. Cuts of features come from a sketch of each
        worker's rows: where a feature has more than `max_bin` distinct values, they differ a little
        with the number of workers, as they do without a fairness term.
    data, client_or_spark, y, sensitive_features, sample_weight, features, timeout
        As for :func:`fit`. Features may have missing values.
    given : str or Dask Array, optional
        What separation conditions on in place of `y`.
    criterion, classifier
        Of :class:`evenhand.FairnessRegularizer`.
    fairness_weight, loss, plain_rounds
        Of :func:`evenhand.boosting.objective`.
    num_boost_round : int
    library : "xgboost"
        LightGBM is refused: its workers talk over sockets of their own, and it was not shown that
        all of them ask the objective the same number of times in the same order.
    timeout : float

    Returns
    -------
    xgboost.Booster
        It predicts raw scores: log means for losses with a log link.
    """
    if library != "xgboost":
        raise NotImplementedError(
            f"`library` must be 'xgboost' on a cluster, got {library!r}: it was not shown for "
            "others that all workers ask the objective for the same sums in the same order. Hint: "
            "evenhand.boosting.objective in one process, or FairPostprocessor on its scores."
        )
    if not isinstance(params, Mapping):
        raise TypeError(f"`params` must be a mapping, got {type(params).__name__}.")
    params = dict(params)
    if "objective" in params:
        raise ValueError(
            f"`params` must not hold an objective, got {params['objective']!r}. Hint: the loss "
            "is part of the fair one, as loss='poisson'."
        )
    check_positive_integer("num_boost_round", num_boost_round)
    get_loss(loss)
    check_nonnegative("fairness_weight", fairness_weight)
    if sensitive_features is None:
        raise ValueError("`sensitive_features` must be given, got None.")
    program = Boost(
        params, int(num_boost_round), FairnessRegularizer(criterion, classifier),
        {
            "loss": loss, "fairness_weight": float(fairness_weight),
            "plain_rounds": plain_rounds,
            "learning_rate": params.get("eta", params.get("learning_rate")),
        },
    )  # fmt: skip
    numbers = dict.fromkeys(NUMBERS) | {"y": y, "sample_weight": sample_weight, "given": given}
    found = run_on(program, data, client_or_spark, numbers, sensitive_features, features, timeout)
    booster = found.result
    if found.roles is not None:
        booster.feature_names = list(found.roles.features)
    return booster


@dataclass(frozen=True)
class Boost:
    """`xgboost.train` on every worker."""

    params: dict[str, Any]
    n_rounds: int
    regularizer: FairnessRegularizer
    options: dict[str, Any]

    def __call__(self, read: Read, workers: Workers, threads: int) -> Any:
        import xgboost

        def prepare() -> tuple[dict[str, Any], Any]:
            rows = read()
            check_column(rows["y"], "y")
            groups = resolve_groups(
                rows.pop("sensitive_features"), n_rows=rows["X"].shape[0],
                sample_weight=rows.get("sample_weight"),
            )  # fmt: skip
            bound = self.regularizer.bind(
                rows["y"], sensitive_features=groups, given=rows.get("given")
            )
            return rows, objective(bound, library="xgboost", **self.options)

        rows, fair = run(workers, prepare)
        with joined(workers):
            table = xgboost.DMatrix(
                rows["X"], label=rows["y"], weight=rows.get("sample_weight"), nthread=threads
            )
            params = {"nthread": threads, **self.params}
            try:
                return xgboost.train(params, table, self.n_rounds, obj=fair)
            except xgboost.core.XGBoostError as error:
                # The exchanges of its own say where in its source they failed.
                if "collective" in str(error):
                    raise WorkerLostError(lost("while trees were grown")) from error
                raise

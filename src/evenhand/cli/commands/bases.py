"""The regressors by name that a stack stands on: `--model xgboost`, `lightgbm`, `hgb`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...files.tabular import TableError

# Slow and shallow, which needs no tuning on tables of any usual size.
TREES, RATE, DEPTH = 300, 0.05, 4


def _xgboost(seed: int) -> Any:
    try:
        from xgboost import XGBRegressor
    except ImportError:
        raise _missing("xgboost") from None
    return XGBRegressor(
        n_estimators=TREES, learning_rate=RATE, max_depth=DEPTH, random_state=seed, n_jobs=1
    )


def _lightgbm(seed: int) -> Any:
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        raise _missing("lightgbm") from None
    return LGBMRegressor(
        n_estimators=TREES, learning_rate=RATE, max_depth=DEPTH, random_state=seed, n_jobs=1,
        verbose=-1,
    )  # fmt: skip


def _hgb(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=TREES, learning_rate=RATE, max_depth=DEPTH, early_stopping=False,
        random_state=seed,
    )  # fmt: skip


def _missing(package: str) -> TableError:
    return TableError(
        f"--model {package} needs the package {package}, which is not installed. Hint: pip install "
        "'evenhand[boosting]', or --model hgb, which needs nothing more."
    )


def _stack(base: Callable[[int], Any]) -> Callable[[str, Mapping[str, Any]], Any]:
    def build(criterion: str, options: Mapping[str, Any]) -> Any:
        from ...models.postprocess import FairPostprocessor

        return FairPostprocessor(
            base(options["seed"]), criterion, passthrough=True,
            group_features=options["group_features"], random_state=options["seed"],
        )  # fmt: skip

    return build


# (criterion, options) → a stack.
STACKS = {"xgboost": _stack(_xgboost), "lightgbm": _stack(_lightgbm), "hgb": _stack(_hgb)}

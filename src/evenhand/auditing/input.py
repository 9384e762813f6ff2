"""What an audit is given: columns of scores by model, and of groups by attribute."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from ..groups.continuous import Continuous
from ..groups.proxy import Proxy
from ..groups.validation import check_names, frame_columns, read_native


def models_of(y_pred: Any) -> dict[str, Any]:
    """Prediction columns by name; a single column has the name ""."""
    if isinstance(y_pred, dict):
        if not y_pred:
            raise ValueError("`y_pred` must hold at least one model, got an empty dict.")
        check_names(list(y_pred), "y_pred")
        return {str(name): column for name, column in y_pred.items()}
    native = read_native(y_pred, "y_pred")
    if isinstance(native, nw.DataFrame) and len(native.columns) > 1:
        check_names([column.name for column in native.iter_columns()], "y_pred")
        return {name: column.to_numpy() for name, column in frame_columns(native)}
    return {"": y_pred}


def attributes_of(sensitive_features: Any) -> dict[str, Any] | None:
    """Attributes by name, each as a dict of one; None for a single column without a frame."""
    native = read_native(sensitive_features, "sensitive_features")
    if isinstance(sensitive_features, dict):
        check_names(list(sensitive_features), "sensitive_features")
        columns = {str(name): column for name, column in sensitive_features.items()}
    elif isinstance(native, nw.DataFrame):
        check_names([column.name for column in native.iter_columns()], "sensitive_features")
        columns = {name: column.to_native() for name, column in frame_columns(native)}
    elif isinstance(sensitive_features, Proxy | Continuous) or isinstance(native, nw.Series):
        return None
    else:
        array = np.asarray(sensitive_features)
        if array.ndim != 2:
            return None
        columns = {f"attribute {j}": array[:, j] for j in range(array.shape[1])}
    # An Arrow column or an array does not know its name; a dict of one keeps it.
    return {name: {name: column} for name, column in columns.items()}

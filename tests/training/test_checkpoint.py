"""A fit that was cut off goes on where it stood."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.exceptions import ConvergenceWarning

import evenhand as eh
from evenhand.training.solver import Checkpoint


def rows(n=4_000, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 5)) * [1, 2, 0.5, 1, 1] + a[:, None] * [0.8, 0.1, 0.3, 0.0, -0.5]
    score = X @ [1.0, 0.6, 0.3, 0.2, 0.4]
    return X, score + rng.normal(size=n), rng.poisson(np.exp(0.2 * score)), a


X, Y, CLAIMS, A = rows()


class Cut(Exception):
    pass


def cut_after(monkeypatch, count):
    """The fit ends with so many iterations written down."""
    original, left = Checkpoint._write, [count]

    def write(self, content):
        original(self, content)
        left[0] -= bool(content["searches"])
        if left[0] == 0:
            raise Cut

    monkeypatch.setattr(Checkpoint, "_write", write)


MODELS = {
    "separation": lambda **o: (eh.FairRidge("separation", 3.0, **o), Y),
    "large weight": lambda **o: (eh.FairRidge("independence", 60.0, **o), Y),
    "lspc": lambda **o: (eh.FairRidge("independence", 3.0, classifier="lspc", **o), Y),
    "poisson": lambda **o: (eh.FairGLM("poisson", "independence", 5.0, **o), CLAIMS),
    "known group": lambda **o: (eh.FairRidge("separation", group_features="attribute", **o), Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_goes_on_from_the_last_iterate(name, tmp_path, monkeypatch):
    path = tmp_path / "fit.json"
    model, y = MODELS[name]()
    whole = model.fit(X, y, sensitive_features=A)
    iterations = whole.n_iter_
    model, _ = MODELS[name]()
    with monkeypatch.context() as patch:
        cut_after(patch, 3)
        with pytest.raises(Cut):
            model.fit(X, y, sensitive_features=A, checkpoint=path)
    again = model.fit(X, y, sensitive_features=A, checkpoint=path)
    np.testing.assert_allclose(again.coef_, whole.coef_, rtol=0, atol=3e-6)
    np.testing.assert_allclose(again.objective_, whole.objective_, rtol=1e-9)
    if name != "large weight":  # which goes through smaller ones first, and counts its last step
        assert again.n_iter_ <= iterations - 2
    if name == "poisson":
        assert again.n_newton_ <= 1 < whole.n_newton_
    done = model.fit(X, y, sensitive_features=A, checkpoint=path)
    assert done.n_iter_ == 1
    np.testing.assert_allclose(done.coef_, again.coef_, rtol=1e-7, atol=1e-9)


def test_more_iterations_can_be_asked_for(tmp_path):
    path = tmp_path / "fit.json"
    with pytest.warns(ConvergenceWarning, match="raise `max_iter`"):
        eh.FairRidge("separation", 3.0, max_iter=3).fit(
            X, Y, sensitive_features=A, checkpoint=path
        )  # fmt: skip
    found = eh.FairRidge("separation", 3.0).fit(X, Y, sensitive_features=A, checkpoint=path)
    whole = eh.FairRidge("separation", 3.0).fit(X, Y, sensitive_features=A)
    np.testing.assert_allclose(found.coef_, whole.coef_, rtol=0, atol=3e-6)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "fit.json"
    eh.FairRidge("separation").fit(X, Y, sensitive_features=A, checkpoint=path)
    return path


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (eh.FairRidge("separation", 2.0), (X, Y, A), "with fairness_weight 1.0, and now it is 2.0"),
        (eh.FairRidge("separation", alpha=1.0), (X, Y, A), "with alpha 0.001, and now it is 1.0"),
        (eh.FairGLM("normal", "separation"), (X, Y, A), "of a FairRidge, and now it is FairGLM"),
        (eh.FairRidge("separation"), (X[:-1], Y[:-1], A[:-1]), "rows were 4000, and now .* 3999"),
        (eh.FairRidge("separation"), (X, -Y, A), "on rows with another plain"),
        (eh.FairRidge("separation"), (X[:, :4], Y, A), "whose features were .*'5'.*'4'"),
        (eh.FairRidge("separation"), (X, Y, np.where(A, "u", "v")), "whose groups were"),
        (eh.FairRidge("separation"), (X, Y, np.roll(A, 1) * (X[:, 0] > 0)), "another counts"),
    ],
)
def test_other_rows_or_parameters_are_refused(written, model, data, message):
    before = written.read_text()
    with pytest.raises(ValueError, match=f"(?s)must be of the same model.*{message}"):
        model.fit(*data[:2], sensitive_features=data[2], checkpoint=written)
    assert written.read_text() == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "{}",
        lambda text: text.replace('"version": 1', '"version": 9'),
        lambda text: text.replace("evenhand checkpoint", "something else"),
        lambda text: json.dumps({**json.loads(text), "searches": {"1.0": {"v": ["x"]}}}),
        lambda text: json.dumps({**json.loads(text), "solved": {"one": {"v": [1.0]}}}),
        lambda text: text.replace("[", "[NaN, ", 3),
    ],
)
def test_what_no_fit_has_written_is_refused(written, spoil):
    written.write_text(spoil(written.read_text()))
    with pytest.raises(ValueError, match=r"must be a file that a fit has written, and .* is not"):
        eh.FairRidge("separation").fit(X, Y, sensitive_features=A, checkpoint=written)


def test_a_path_that_cannot_be_written(tmp_path):
    fit = eh.FairRidge().fit
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        fit(X, Y, sensitive_features=A, checkpoint=tmp_path / "no" / "fit.json")
    with pytest.raises(IsADirectoryError):
        fit(X, Y, sensitive_features=A, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="`checkpoint` must be a path, got int"):
        fit(X, Y, sensitive_features=A, checkpoint=3)


KILLED = """
import os, signal, sys
import evenhand as eh
from evenhand.training.solver import Checkpoint
original, written = Checkpoint._write, []
def write(self, content):
    original(self, content)
    written.extend(content["searches"])
    if len(written) >= 3:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint._write = write
eh.FairRidge("separation", 3.0).fit(
    sys.argv[1], "y", sensitive_features="a", checkpoint=sys.argv[2], scratch=sys.argv[3]
)
"""


def test_killed_and_started_again(tmp_path):
    data, path, scratch = tmp_path / "data.parquet", tmp_path / "fit.json", tmp_path / "scratch"
    scratch.mkdir()
    columns = {f"x{j}": X[:, j] for j in range(5)}
    parquet.write_table(pa.table({**columns, "y": Y, "a": A}), data)
    done = subprocess.run([sys.executable, "-c", KILLED, data, path, scratch], check=False)
    assert done.returncode == -signal.SIGKILL
    assert json.loads(path.read_text())["searches"]
    assert not list(scratch.iterdir())
    options = {"sensitive_features": "a", "scratch": scratch}
    again = eh.FairRidge("separation", 3.0).fit(data, "y", checkpoint=path, **options)
    whole = eh.FairRidge("separation", 3.0).fit(data, "y", **options)
    np.testing.assert_allclose(again.coef_, whole.coef_, rtol=0, atol=3e-6)
    assert again.n_iter_ < whole.n_iter_
    assert not list(scratch.iterdir())
    # Nothing half-written beside the file.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.parquet", "fit.json", "scratch"]


def test_progress_is_shown_on_a_terminal_only(tmp_path, monkeypatch, capsys):
    data = tmp_path / "data.parquet"
    columns = {f"x{j}": X[:, j] for j in range(5)}
    parquet.write_table(pa.table({**columns, "y": Y, "a": A}), data)
    monkeypatch.setattr("evenhand._core.progress.PROGRESS_AFTER", -1.0)
    model = eh.FairRidge("separation", 3.0)
    model.fit(data, "y", sensitive_features="a")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    model.fit(data, "y", sensitive_features="a")
    shown = capsys.readouterr().err
    assert "reading rows" in shown
    assert "fitting FairRidge" in shown

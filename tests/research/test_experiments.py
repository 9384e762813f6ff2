"""The experiments: a small run of all of them, resuming, and a page that agrees with its CSVs."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import common

RESEARCH = Path(__file__).parents[2] / "research"


@pytest.fixture
def setting(tmp_path):
    return common.read_arguments(None, ["--quick", "--out", str(tmp_path)])


def count_calls(path, fail=False):
    """A unit of work that leaves a mark whenever it really runs."""
    with Path(path).open("a") as file:
        file.write("x")
    if fail:
        raise RuntimeError("stopped")
    return {"value": np.arange(3.0)}


def test_quick_run_of_everything(tmp_path):
    command = [sys.executable, str(RESEARCH / "run.py"), "all", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    made = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert not [name for name in made if "tmp" in name]
    tables = {name for name in made if name.endswith(".csv")}
    assert len(tables) == 11
    for name in tables:
        note = json.loads((tmp_path / name).with_suffix(".json").read_text())
        assert note["seed"] == 0
        assert note["quick"] is True
        # The points behind a table took the time that is noted with the table.
        assert note["compute_seconds"] > 0 or name == "penalty_path.csv"
        assert {"python", "numpy", "evenhand"} <= note["versions"].keys()
    with (tmp_path / "thresholds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["league"] for row in rows} == {"attribute not needed", "attribute needed"}
    met = [row for row in rows if row["r2"]]
    assert met
    assert all(float(row["value"]) <= float(row["threshold"]) for row in met)
    pictures = [tmp_path / name for name in made if name.endswith(".png")]
    assert len(pictures) == 12
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_a_unit_runs_once(setting, tmp_path):
    mark = tmp_path / "mark"
    for _ in range(2):
        found = common.run_all(setting, count_calls, [(str(mark),)], "units")
        np.testing.assert_array_equal(found[0]["value"], [0.0, 1.0, 2.0])
    assert mark.read_text() == "x"


def test_a_stopped_unit_leaves_nothing_and_runs_again(setting, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(RuntimeError, match="stopped"):
        common.run_all(setting, count_calls, [(str(mark), True)], "units")
    assert not list(setting.cache.rglob("*.npz"))
    with pytest.raises(RuntimeError, match="stopped"):
        common.run_all(setting, count_calls, [(str(mark), True)], "units")
    assert mark.read_text() == "xx"


def test_fresh_forgets(setting, tmp_path):
    mark = tmp_path / "mark"
    common.run_all(setting, count_calls, [(str(mark),)], "units")
    again = common.read_arguments(None, ["--quick", "--fresh", "--out", str(tmp_path)])
    common.run_all(again, count_calls, [(str(mark),)], "units")
    assert mark.read_text() == "xx"


def test_csv_is_replaced_whole(setting):
    path = common.write_csv(setting, "some", [{"a": 1.0 / 3.0, "b": "x"}], 1.0)
    assert path.read_text() == "a,b\n0.333333,x\n"
    with pytest.raises(ValueError, match="broken"):
        common.write_csv(setting, "some", broken(), 1.0)
    assert path.read_text() == "a,b\n0.333333,x\n"
    assert common.read_csv(path) == [{"a": 0.333333, "b": "x"}]


def broken():
    yield {"a": 2.0}
    raise ValueError("broken")


def test_folds_are_standardized_on_the_training_rows():
    data = common.load("communities", True)
    seen = np.zeros(len(data.y), dtype=int)
    for inside, outside, train, test in data.folds():
        np.testing.assert_allclose(inside.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(inside.std(axis=0), 1.0)
        assert abs(outside.mean()) > 1e-6
        assert not set(train) & set(test)
        seen[test] += 1
    assert (seen == 1).all()


def test_measure_with_a_known_target_entropy_is_the_same():
    data = common.load("communities", True)
    score = data.X[:, 0]
    known = float(common.target_entropy("communities", True, "fourier")["nats"])
    assert common.measure(score, data.y, data.a, "fourier", known) == pytest.approx(
        common.measure(score, data.y, data.a, "fourier")
    )


def test_crossing_between_two_strengths(monkeypatch):
    from studies.frontier import crossing

    rows = [
        {"strength": 0.0, "r2": 0.6, "separation_fourier": 0.3},
        {"strength": 1.0, "r2": 0.5, "separation_fourier": 0.1},
        {"strength": 2.0, "r2": 0.4, "separation_fourier": 0.2},
    ]
    assert crossing(rows, "separation_fourier", 0.15) == pytest.approx(0.525)
    assert crossing(rows, "separation_fourier", 0.05) is None
    assert crossing(rows, "separation_fourier", 0.5) == pytest.approx(0.6)


def test_the_page_agrees_with_the_results(monkeypatch):
    from studies import report

    page = RESEARCH.parent / "docs" / "reproduction.md"
    assert report.build(RESEARCH / "results") == page.read_text()
    for line in page.read_text().splitlines():
        if line.startswith("!["):
            assert (page.parent / line.split("(")[-1].rstrip(")")).exists()


def test_every_method_has_a_line_of_its_own(monkeypatch):
    from studies.methods import BEST, COMPARED, FAMILIES, METHODS, SHOWN

    assert len(METHODS) == len({m.name for m in COMPARED}) + 5
    drawn = {(m.color, m.marker, m.dash, m.league) for m in SHOWN}
    assert len(drawn) == len(SHOWN)
    shown = {member for name, members in FAMILIES.items() if BEST not in name for member in members}
    assert shown | set(FAMILIES["LSPC-ind-quad" + BEST] + FAMILIES["LSPC-sep-quad" + BEST]) == {
        m.name for m in COMPARED
    }


@pytest.mark.parametrize("name", ["Wasserstein, interpolated", "entropic unaware (Taturyan)"])
def test_one_fit_for_all_strengths_is_a_fit_each(monkeypatch, name):
    from common import load
    from studies.methods import METHODS

    how, data = METHODS[name], load("communities", True)
    needed = {"sensitive_features": data.a} if how.league == "attribute needed" else {}
    model = how.build(0.0).fit(data.X, data.y, sensitive_features=data.a)
    for strength in (1.0, 0.3):
        alone = how.build(strength).fit(data.X, data.y, sensitive_features=data.a)
        np.testing.assert_allclose(
            how.reset(model, strength).predict(data.X, **needed), alone.predict(data.X, **needed)
        )


def test_bounds_are_met_from_within(monkeypatch, setting):
    from studies import frontier

    def measured(dataset, quick, method, strength, estimator, cache):
        return {"separation": 0.4 / (1.0 + strength), "r2": 0.6 - 0.1 * strength}

    monkeypatch.setattr(frontier, "measure_point", measured)
    found = frontier.refine("communities", False, "evenhand-sep", "separation", setting.cache)
    exact = [0.4 / t - 1.0 for t in frontier.THRESHOLDS]
    assert len(found["strengths"]) == 3
    for strength, least in zip(found["strengths"], exact, strict=True):
        assert least <= strength < 1.25 * least


def test_continuation_changes_nothing_where_there_is_one_minimum(monkeypatch):
    from studies import penalty

    setting = ("communities", True, "logistic, bounded scores", "separation")
    alone, along = (penalty.penalty_path(*setting, continued) for continued in (False, True))
    np.testing.assert_allclose(along["r2"], alone["r2"], atol=1e-4)
    assert along["r2"][0] == alone["r2"][0]


def test_peers_take_three_groups(monkeypatch):
    pytest.importorskip("fairlearn")
    from rivals import packages

    rng = np.random.default_rng(0)
    a = np.array(["u", "v", "w"])[np.arange(900) % 3]
    X = rng.normal(size=(900, 3)) + (a == "v")[:, None] * [1.0, 0.0, 0.0]
    X[:, 1] -= 2.0 * (a == "w")
    y = X.sum(axis=1) + rng.normal(size=900)
    score = packages.Decorrelated(1.0).fit(X, y, sensitive_features=a)
    means = [score.predict(X, sensitive_features=a)[a == k].mean() for k in "uvw"]
    np.testing.assert_allclose(means, means[0], atol=1e-8)


@pytest.mark.parametrize("step", [0.0, 0.5, 1.0])
def test_equipy_is_the_barycenter_of_this_package(monkeypatch, step):
    pytest.importorskip("fairlearn")
    pytest.importorskip("equipy")
    from studies.methods import METHODS

    rng = np.random.default_rng(0)
    a = np.arange(2000) % 2
    X = rng.normal(size=(2000, 2)) + a[:, None]
    y = X.sum(axis=1) + rng.normal(size=2000)
    theirs, ours = (
        METHODS[name].build(step).fit(X, y, sensitive_features=a).predict(X, sensitive_features=a)
        for name in ("EquiPy", "Wasserstein, interpolated")
    )
    assert np.abs(theirs - ours).mean() < 0.01

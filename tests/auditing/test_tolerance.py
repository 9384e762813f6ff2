"""Tolerances and their files."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import FrozenInstanceError

import pytest

import evenhand as eh
from evenhand.auditing.tolerance import distinct_entries

WHOLE = eh.Tolerance(
    independence=0.01, separation=0.02, sufficiency=0.03, smd=(-0.1, 0.1),
    mean_difference=(-5, 5), mean_ratio=(0.95, 1.05), actual_expected=(0.9, 1.1),
    actual_expected_ratio=(0.9, 1.1), impact_ratio=(0.8, None), odds_ratio=(None, 2),
    favorable="low", at=("median", 0.2), reference='quoted "é" name', level=0.01, smallest=0.05,
)  # fmt: skip


@pytest.mark.parametrize("name", ["t.json", "t.toml"])
def test_files_hold_everything(name, tmp_path):
    path = WHOLE.to_file(tmp_path / name)
    again = eh.Tolerance.from_file(path)
    assert again == WHOLE
    assert again.digest == WHOLE.digest
    assert hash(again) == hash(WHOLE)
    with pytest.raises(FileExistsError, match="exists already and is left as it is"):
        WHOLE.to_file(path)
    WHOLE.to_file(path, force=True)


def test_open_ends_and_clauses():
    assert WHOLE["impact_ratio"] == (0.8, math.inf)
    assert WHOLE["odds_ratio"] == (-math.inf, 2.0)
    assert WHOLE["independence"] == (0.0, 0.01)
    assert "smd" in WHOLE
    assert "smd" not in eh.Tolerance(independence=0.01)
    assert WHOLE.needs_target == [
        "separation", "sufficiency", "actual_expected", "actual_expected_ratio",
    ]  # fmt: skip
    assert "impact ratio at least 0.8; odds ratio at most 2" in str(WHOLE)


def test_digest_is_of_the_canonical_form():
    data = WHOLE.to_dict()
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == WHOLE.digest
    one = eh.Tolerance(mean_ratio=[1, 2], independence=0.01)
    assert one.digest == eh.Tolerance(independence=0.01, mean_ratio=(1.0, 2.0)).digest
    assert one.digest != eh.Tolerance(independence=0.01, mean_ratio=(1.0, 2.1)).digest
    assert eh.Tolerance(smd=(-1, 1), at="median") == eh.Tolerance(smd=(-1, 1), at=[0.5])


def test_it_does_not_change():
    with pytest.raises(FrozenInstanceError):
        WHOLE.level = 0.5


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        (
            {},
            "must hold at least one clause, got none; there are indep.*mean_residual.*adjusted_gap",
        ),
        ({"means_ratio": (1, 2)}, "no clause 'means_ratio'; there are .*Hint: did you mean 'mean_"),
        ({"zzz": 1}, "no clause 'zzz'; there are independence, separation.*smallest.$"),
        ({"independence": (0, 0.1)}, "`independence` must be one number above 0 and below 1"),
        ({"independence": 0}, "Hint: no data can show that a criterion holds exactly"),
        ({"independence": float("nan")}, "`independence` must be one number .*got nan"),
        ({"independence": True}, "`independence` must be one number"),
        ({"smd": 0.1}, r"`smd` must be two numbers, \(low, high\), got 0.1"),
        ({"smd": (0.1, 0.2, 0.3)}, "`smd` must be two numbers"),
        ({"smd": ("a", 0.2)}, "`smd` must be two numbers"),
        ({"smd": (float("nan"), 0.2)}, "`smd` must be two numbers"),
        ({"smd": (0.2, 0.1)}, "`smd` must run from a lower to a higher number"),
        ({"smd": (None, None)}, "`smd` must run .*at most one of them open"),
        ({"mean_ratio": (-1, 1)}, "`mean_ratio` is a ratio and must lie above 0"),
        ({"impact_ratio": (0.8, 1.25)}, '`favorable` must be given for impact_ratio: "high" if'),
        ({"odds_ratio": (0.8, 1.25), "favorable": "up"}, "`favorable` must be \"high\" .*got 'up'"),
        (
            {"odds_ratio": (0.8, 2), "favorable": "low", "at": ()},
            "`at` must hold a cutoff for odds",
        ),
        ({"smd": (-1, 1), "reference": 3}, '`reference` must be "largest" or a group, got 3'),
        ({"smd": (-1, 1), "level": 1}, "`level` must be between 0 and 0.5, got 1"),
        ({"smd": (-1, 1), "smallest": -1}, "`smallest` must be a share"),
    ],
)
def test_bad_clauses(clauses, message):
    with pytest.raises(ValueError, match=message):
        eh.Tolerance(**clauses)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "must say format = 'evenhand.tolerance', got 'other'"),
        ({"version": 9}, "must be of version 1, got 9"),
        ({"leve": 0.1}, "no clause 'leve'.*did you mean 'level'"),
        ({"clauses": [1]}, "`clauses` of a tolerance must be a table of limits by name"),
        ({"clauses": {"means": 1}}, "no clause 'means'"),
        ({"clauses": {"smd": [1]}}, "`smd` must be two numbers"),
        ({"clauses": {"level": 0.1}}, "no clause 'level'"),
    ],
)
def test_bad_files(change, message, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({**WHOLE.to_dict(), **change}))
    with pytest.raises(ValueError, match=f"t.json: .*{message}"):
        eh.Tolerance.from_file(path)


def test_files_of_another_kind(tmp_path):
    with pytest.raises(
        ValueError, match=r"A tolerance file must end in .json or .toml, got 't.yaml'"
    ):
        eh.Tolerance.from_file(tmp_path / "t.yaml")
    for name in ("t.json", "t.toml"):
        (tmp_path / name).write_text("{[")
        with pytest.raises(ValueError, match=f"{name} must be {name[2:].upper()}, which it is not"):
            eh.Tolerance.from_file(tmp_path / name)
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"must say format = .*got 'list'"):
        eh.Tolerance.from_file(tmp_path / "list.json")


def test_only_regular_files_are_replaced(tmp_path):
    link = tmp_path / "t.toml"
    link.symlink_to(tmp_path / "elsewhere.toml")
    with pytest.raises(OSError, match="is a symbolic link, which is never overwritten"):
        WHOLE.to_file(link, force=True)
    assert not (tmp_path / "elsewhere.toml").exists()


def test_further_clauses_take_numbers_or_ranges():
    tolerance = eh.Tolerance(
        mean_residual=(-1, 1), calibration_slope=(0.9, 1.1), mae_ratio=(0.8, 1.25),
        rmse_ratio=(None, 1.25), dsm=0.1, kolmogorov_smirnov=0.05, wasserstein=2,
        impact_ratio=(0.8, None), favorable="high", at=(), cutoffs=[620],
    )  # fmt: skip
    assert tolerance["dsm"] == (-0.1, 0.1)
    assert tolerance["kolmogorov_smirnov"] == (-math.inf, 0.05)
    assert tolerance.cutoffs == (620.0,)
    assert tolerance.needs_target == [
        "mean_residual", "calibration_slope", "mae_ratio", "rmse_ratio", "dsm",
    ]  # fmt: skip
    assert eh.Tolerance.from_dict(tolerance.to_dict()) == tolerance
    for bad in (-0.1, "x", True):
        with pytest.raises(ValueError, match="`dsm` must be two numbers"):
            eh.Tolerance(dsm=bad)
    # A tolerance without such cutoffs keeps the digest that was published.
    assert "cutoffs" not in eh.Tolerance(dsm=0.1).to_dict()


@pytest.mark.parametrize("kind", ["json", "toml"])
def test_two_limits_for_one_clause_are_refused(tmp_path, kind):
    path = tmp_path / f"limits.{kind}"
    eh.Tolerance(independence=0.01).to_file(path)
    text = path.read_text()
    again = '"independence": 0.01, "independence": 0.5'
    if kind == "toml":
        again = "independence = 0.01\nindependence = 0.5"
    line = next(line.strip() for line in text.splitlines() if "independence" in line)
    path.write_text(text.replace(line, again))
    with pytest.raises(ValueError, match=r"limits\.\w+.*(one limit, got 0.01 and 0.5|overwrite)"):
        eh.Tolerance.from_file(path)
    with pytest.raises(ValueError, match=r"`independence` must have one limit, got 0\.1 and 0\.2"):
        distinct_entries([("independence", 0.1), ("smd", (0, 1)), ("independence", 0.2)])

"""Every trick of dressing up a table at every gate: none turns a fail into a pass in silence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from test_cli import error, run

import evenhand as eh

N, LIMIT = 1500, 0.02
Dressed = tuple[pd.DataFrame, tuple[str, ...]]


def plain(seed: int = 0) -> pd.DataFrame:
    """A quarter of the rows, group "b", scores 0.8 higher: independence is .06, not .02."""
    rng = np.random.default_rng(seed)
    a = np.where(rng.random(N) < 0.25, "b", "a").astype(object)
    s = np.sqrt(2.0) * rng.normal(size=N) + 0.8 * (a == "b")
    day = rng.choice(["2024-01-05", "2024-02-05", "2024-03-05"], N)
    return pd.DataFrame({"s": s, "a": a, "day": day, "one": 1, "u": rng.random(N)})


def spared(t: pd.DataFrame) -> pd.Series:
    """All but those of "b" without whom their scores would be like the others'."""
    chance = np.exp(-0.4 * t["s"])
    return (t["a"] != "b") | (t["u"] < chance / np.quantile(chance, 0.97))


def name(t: pd.DataFrame, rows: pd.Series, labels) -> pd.DataFrame:
    return t.assign(a=t["a"].where(~rows, labels))


def number(t: pd.DataFrame, label: str, words) -> pd.DataFrame:
    """One of several words in place of a label."""
    return name(t, t["a"] == label, [words[int(1e6 * u) % len(words)] for u in t["u"]])


def again(t: pd.DataFrame, noise: float) -> pd.DataFrame:
    """Those who do no harm, five times over."""
    rng, few = np.random.default_rng(1), t[spared(t)]
    return pd.concat([t, *(few.assign(s=few["s"] + noise * rng.normal(size=len(few)))
                           for _ in range(5))])  # fmt: skip


def weigh(t: pd.DataFrame, weight) -> pd.DataFrame:
    return t.assign(w=np.where(spared(t), 1.0, weight))


TRICKS = {
    "majority split": lambda t: (number(t, "a", [f"a{k}" for k in range(40)]), ()),
    "minority split": lambda t: (number(t, "b", [f"b{k}" for k in range(40)]), ()),
    "spellings": lambda t: (number(t, "b", ["b", "B", " b"]), ()),
    "Cyrillic letters": lambda t: (number(t, "b", ["Bo", "\u0412\u043e", "B\u043e"]), ()),
    "unseen letters": lambda t: (number(t, "b", ["b", "b\u200b", "\u2060b"]), ()),
    "blanks": lambda t: (name(t, ~spared(t), None), ()),
    "NA": lambda t: (name(t, ~spared(t), "NA"), ()),
    "missing": lambda t: (name(t, ~spared(t), "b2"), ("--missing", "b2")),
    "weights": lambda t: (weigh(t, 0.01), ("-w", "w")),
    "weights of zero": lambda t: (weigh(t, 0.0), ("-w", "w")),
    "infinite weights": lambda t: (weigh(t, np.inf), ("-w", "w")),
    "frequencies": lambda t: (weigh(t, 0.0), ("--frequency", "w")),
    "copies": lambda t: (again(t, 0.0), ()),
    "copies nearby": lambda t: (again(t, 1e-9), ()),
    "blank scores": lambda t: (t.assign(s=t["s"].where(spared(t))), ("--drop-missing",)),
    "infinite scores": lambda t: (t.assign(s=t["s"].where(spared(t), -np.inf)), ()),
    "one column of noise more": lambda t: (
        t.assign(x=[f"x{int(30 * u)}" for u in t["u"]]), ("-a", "x"),
    ),
    "blanks in another column": lambda t: (
        t.assign(x=np.where(spared(t), np.where(t["u"] < 0.3, "x", "y"), None)), ("-a", "x"),
    ),
    "a group in one cluster": lambda t: (
        t.assign(c=np.where(t["a"] == "b", "b", t.index.astype(str))), ("--cluster", "c"),
    ),
    "huge scores": lambda t: (t.assign(s=t["s"].where(t.index % 50 > 0, 1e9 * (t["u"] - 0.5))), ()),
    "few rows": lambda t: (t[:60], ()),
    "labels by month": lambda t: (t.assign(a=t["a"] + t["day"].str[5:7]), ()),
    "a month of their own": lambda t: (
        t.assign(day=t["day"].where(spared(t), "2024-04-05")), (),
    ),
    "frequencies of nine": lambda t: (t.assign(w=np.where(spared(t), 9, 1)), ("--frequency", "w")),
    "blank weights": lambda t: (weigh(t, np.nan), ("-w", "w", "--drop-missing")),
    "blank targets": lambda t: (
        t.assign(y=t["s"].where(spared(t))), ("-y", "y", "--drop-missing"),
    ),
    "a small group left out": lambda t: (
        name(t.assign(s=t["s"] + (t["a"] == "b")), t["a"] == "a",
             np.where(t["u"] < 0.5, "a", "c"))[(t["a"] == "a") | (t["u"] < 0.25)],
        ("--least-group", "200"),
    ),
}  # fmt: skip
GATES = {
    "tolerance": ("audit", "--tolerance", "limits.toml"),
    "fail-above": ("audit", "--fail-above", f"independence={LIMIT}"),
    "upper": ("audit", "--fail-above", f"independence={LIMIT}", "--judge-by", "upper"),
    "engine": ("audit", "--engine", "duckdb", "--tolerance", "limits.toml"),
    "compare": ("compare", "-s", "t", "--tolerance", "limits.toml"),
    "compare, fail-above": ("compare", "-s", "t", "--fail-above", f"independence={LIMIT}"),
    "monitor": ("monitor", "--time", "day", "--limit", f"independence={LIMIT}"),
}
# What is said of data that were dressed up; a pass must say one of these.
SAID = (
    "copies of others", "Rows count by", "have no known group", "likely the same group",
    "is taken for a group", "copies of a row", "does not see every pattern",
)  # fmt: skip
REFUSED = ("infinite weights", "infinite scores")
# Options that a gate does not have.
LACKS = {
    "engine": {"--drop-missing", "--cluster", "--least-group"},
    "monitor": {"--drop-missing", "--least-group"},
}


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """The exit code and the words of a gate on a table."""
    monkeypatch.chdir(tmp_path)
    eh.Tolerance(independence=LIMIT).to_file("limits.toml")

    def judge(gate: str, table: pd.DataFrame, more: tuple[str, ...] = ()):
        table.assign(t=table["s"] + 1.0).to_csv("t.csv", index=False)
        command, *words = GATES[gate]
        found = run(command, "t.csv", "-s", "s", "-a", "a", *more, *words, "--estimator",
                    "logistic")  # fmt: skip
        return found.exit_code, " ".join(found.output.split())

    return judge


@pytest.mark.parametrize("gate", GATES)
def test_the_plain_table_fails(judge, gate):
    assert judge(gate, plain())[0] == 1


# The two others share all of their code with these.
@pytest.mark.parametrize("gate", [gate for gate in GATES if gate not in ("upper", "compare")])
@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_passes_in_silence(judge, trick, gate):
    table, more = TRICKS[trick](plain())
    if LACKS.get(gate, set()) & {*more}:
        more = ()
    code, text = judge(gate, table, more)
    refused = trick in REFUSED or (trick == "blank scores" and not more)
    assert code in ((2,) if refused else (0, 1, 4)), text
    if code == 0:
        assert any(words in text for words in SAID), text
    if code == 0 and "weights" in trick + text:
        assert "ithout" in text


@pytest.mark.parametrize("gate", GATES)
def test_weights_that_make_a_pass_are_the_first_sentence(judge, gate):
    table, more = TRICKS["weights of zero"](plain())
    code, text = judge(gate, table, more)
    assert code == (4 if gate == "monitor" else 0)
    first = text.index("ithout ")
    assert first < text.index("Rows count by the sample weights 'w'")
    assert "fail" in text[first:] or "above the limit" in text[first:]


def test_two_limits_for_one_criterion(tmp_path):
    plain().to_csv(tmp_path / "t.csv", index=False)
    eh.Tolerance(independence=LIMIT).to_file(tmp_path / "limits.toml")
    words = ("audit", tmp_path / "t.csv", "-s", "s", "-a", "a", "--tolerance",
             tmp_path / "limits.toml", "--fail-above")  # fmt: skip
    text = error(*words, "independence=0.9")
    assert "--fail-above allows 0.9 of independence, and" in text
    assert "Hint: keep the limit that was agreed on" in text
    assert run(*words, f"independence={LIMIT}").exit_code == 1


@pytest.mark.parametrize("limit", ["5", "nan", "-1", "2%"])
def test_limits_that_are_none(tmp_path, limit):
    plain().to_csv(tmp_path / "t.csv", index=False)
    words = (tmp_path / "t.csv", "-s", "s", "-a", "a")
    assert "must have a limit between 0 and 1" in error(
        "audit", *words, "--fail-above", f"independence={limit}"
    )
    found = run("tolerance", tmp_path / "t.toml", "--clause", f"independence={limit}")
    assert found.exit_code == 2

"""Monitoring: alarms where something moved, none where nothing did, and clear refusals."""

import datetime
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh
from evenhand.auditing.monitoring import spent
from evenhand.tables.monitor import name_periods, time_keys


def series(shifts, n=600, seed=0, edges=None):
    """Cells by period; the mean score of the second group lies `shift` above the other's."""
    rng = np.random.default_rng(seed)
    out = {}
    for t, shift in enumerate(shifts):
        a = rng.choice(["p", "q"], n)
        y = rng.normal(size=n)
        s = y + rng.normal(size=n) + shift * (a == "q")
        cells = eh.Cells.from_rows(y, s, sensitive_features=a, edges=edges)
        edges = cells.edges
        out[f"2020-{t + 1:02d}"] = cells
    return out


def test_a_steady_series_raises_nothing():
    found = eh.monitor(series([0.4] * 12), criteria=["independence", "separation"])
    assert found.state == "no change seen"
    assert found.judged == "holds"
    assert not found.alarms
    assert all(x.low <= x.value <= x.high for x in found.looks["separation"])


def test_a_change_is_found_with_its_time_and_raised_once():
    found = eh.monitor(series([0.2] * 8 + [1.2] * 6))
    (alarm,) = found.alarms
    assert (found.state, alarm.kind, alarm.since) == ("changed", "changed", "2020-09")
    assert alarm.before < 0.03 < 0.1 < alarm.after
    assert "Independence got worse: " in alarm.text
    # What was raised stays, and is the same when the series goes on.
    longer = eh.monitor(series([0.2] * 8 + [1.2] * 9))
    assert longer.alarms == found.alarms


def test_a_fall_is_a_change_too():
    found = eh.monitor(series([1.2] * 8 + [0.0] * 4))
    assert "got better: " in found.alarms[0].text


def test_what_would_not_have_shown_is_said():
    few, many = (eh.monitor(series([0.4] * 6, n)) for n in (100, 2000))
    assert 0 < many.detectable["independence"] < few.detectable["independence"]
    assert "a rise of less than" in str(many)
    assert "steady" not in str(many)
    rise = many.detectable["independence"]
    last = many.looks["independence"][-1]
    assert last.stderr < rise < 20 * last.stderr
    assert eh.monitor(series([0.4])).detectable["independence"] == math.inf
    assert eh.monitor(series([0.4] * 3)).to_dict()["detectable"]


def crossed(shifts, n=900, seed=0):
    """Three regions, of which the third moves, and a column of noise."""
    rng = np.random.default_rng(seed)
    parts, edges = {}, None
    for t, shift in enumerate(shifts):
        a = {"region": rng.choice(["x", "y", "z"], n), "noise": rng.choice(list("abcd"), n)}
        s = rng.normal(size=n) + shift * (a["region"] == "z")
        cells = eh.Cells.from_rows(None, s, sensitive_features=a, edges=edges)
        edges = cells.edges
        parts[f"2020-{t + 1:02d}"] = cells
    return parts


def test_a_column_of_noise_hides_no_change():
    found = eh.monitor(crossed([0.0] * 6 + [0.9] * 3))
    assert found.state == "changed"
    assert {"region", "region: z"} <= {alarm.part for alarm in found.alarms}
    assert "Independence (region: z) got worse" in str(found)
    assert {"region", "noise", "region: x", "noise: a", "x × a"} <= set(found.parts)
    assert len(found.parts["region"]["independence"]) == 9
    assert eh.monitor(crossed([0.3] * 6)).state == "no change seen"
    assert eh.monitor(series([0.3] * 2)).parts == {}


def people(gap, months=8, seed=0):
    """The same 60 people every month, five rows each, whose scores move together."""
    rng = np.random.default_rng(seed)
    a, out = rng.integers(0, 2, 60), []
    for month in range(months):
        who = np.repeat(np.arange(60), 5)
        s = rng.normal(size=60)[who] + 0.2 * rng.normal(size=300) + gap * a[who]
        out.append(pd.DataFrame({"month": month, "who": who, "a": a[who], "s": s}))
    return pd.concat(out, ignore_index=True)


def test_clusters_are_counted_and_not_their_rows():
    names = {"time": "month", "period": None, "y_pred": "s", "sensitive_features": "a"}
    alarms = {None: 0, "who": 0}
    for seed in range(8):
        frame = people(0.3, seed=seed)
        for cluster in alarms:
            quick = eh.monitor(frame, cluster=cluster, estimator="logistic", **names)
            alarms[cluster] += bool(quick.alarms)
    assert alarms["who"] == 0 < alarms[None]
    plain, found = (eh.monitor(frame, cluster=c, **names) for c in (None, "who"))
    errors = [x.looks["independence"][0].stderr for x in (plain, found)]
    assert errors[1] > 1.5 * errors[0]
    assert found.detectable["independence"] > plain.detectable["independence"]
    month = frame[:300]
    with pytest.warns(UserWarning, match="300 rows count for 60 clusters"):
        whole = eh.audit(
            None, month["s"], sensitive_features=month["a"], cluster=month["who"]
        ).independence
    first = found.looks["independence"][0]
    assert (first.value, first.stderr) == pytest.approx((whole.value, whole.stderr))
    lazy = eh.monitor(pl.DataFrame(frame).lazy(), cluster="who", **names)
    assert lazy.looks["independence"][0].value == pytest.approx(first.value)
    twice = eh.monitor(frame.assign(f=2, w=1.0), cluster="who", frequency="f", **names)
    assert twice.total.n == 2 * found.total.n
    assert eh.monitor(frame, cluster="who", limits={"independence": 0.9}, **names).alarms == ()


def test_means_of_the_same_people_are_no_surer_than_one_of_them():
    rng = np.random.default_rng(0)
    a, u = rng.integers(0, 2, 400), rng.normal(size=400)
    same = pd.DataFrame({"who": np.arange(400), "a": a, "s": u + 0.5 * a})
    frame = pd.concat([same.assign(month=k) for k in range(24)], ignore_index=True)
    names = {"time": "month", "period": None, "y_pred": "s", "sensitive_features": "a"}
    value = eh.monitor(frame, **names).looks["independence"][0].value
    limits = {"independence": 0.5 * value}
    assert eh.monitor(frame, limits=limits, **names).state == "above the limit"
    assert eh.monitor(frame, limits=limits, cluster="who", **names).state == "not enough data"


def test_drift():
    limits = eh.Tolerance(independence=0.5, drift=0.05)
    calm = eh.monitor(series([0.4] * 6), limits=limits)
    assert calm.state == "no change seen"
    assert 0 < calm.possible["drift"] < 0.05
    assert "Drift: values up to" in str(calm)
    jump = series([0.2] * 6 + [1.8] * 3)
    found = eh.monitor(jump, limits=limits)
    assert (found.state, found.judged) == ("drifted beyond the limit", "violated")
    (alarm,) = (alarm for alarm in found.alarms if alarm.kind == found.state)
    assert "got worse by more than the limit: " in alarm.text
    # A change that is tolerated is told, and is no reason to stop.
    wide = eh.monitor(jump, limits={"drift": 0.5})
    assert (wide.state, wide.alarms[0].kind) == ("no change seen", "changed")
    assert eh.monitor(series([0.4] * 6, n=60), limits={"drift": 0.01}).state == "not enough data"
    assert eh.monitor(series([0.4]), limits={"drift": 0.5}).possible["drift"] == 1.0
    split = eh.monitor(crossed([0.0] * 6 + [1.2] * 3), limits={"drift": 0.05})
    assert {"region", "region: z"} <= {a.part for a in split.alarms if a.kind == split.state}
    y, a = np.arange(40.0), np.arange(40) % 2
    with pytest.raises(ValueError, match="not ask for drift, which needs several periods"):
        eh.audit(None, y, sensitive_features=a, estimator="logistic").verdict(limits)


def test_limits():
    calm = eh.monitor(series([0.2] * 6), limits={"independence": 0.2})
    assert calm.state == "no change seen"
    high = eh.monitor(series([1.2] * 6), limits={"independence": 0.05})
    assert (high.state, high.judged) == ("above the limit", "violated")
    assert math.isnan(high.alarms[0].before)
    assert "above its limit since" in high.alarms[0].text
    with pytest.raises(ValueError, match=r"`limits` must be on what is watched \(independence, "):
        eh.monitor(series([0.0] * 2), limits={"separation": 0.1})
    with pytest.raises(ValueError, match="`limits` must lie between 0 and 1, got 2"):
        eh.monitor(series([0.0] * 2), limits={"independence": 2})


def test_values_are_those_of_an_audit_of_the_period():
    parts = series([0.5] * 3)
    found = eh.monitor(parts, criteria=["separation"])
    for look, cells in zip(found.looks["separation"], parts.values(), strict=True):
        want = eh.audit(cells).separation
        assert (look.value, look.stderr) == pytest.approx((want.value, want.stderr))
    assert found.total.n == 1800


def test_periods_that_say_nothing_are_left_out():
    parts = series([0.3] * 4)
    lone = eh.Cells.from_rows(
        np.zeros(30), np.arange(30.0), sensitive_features=["p"] * 30,
        edges=next(iter(parts.values())).edges,
    )  # fmt: skip
    parts["2020-05"] = lone
    parts |= {"2020-06": series([0.3], edges=lone.edges)["2020-01"]}
    found = eh.monitor(parts)
    assert math.isnan(found.looks["independence"][4].value)
    assert found.state == "no change seen"
    assert "one group only (p)" in str(found)
    assert eh.monitor({"a": lone}).state == "not enough data"


def test_a_third_group_may_come_late():
    parts = series([0.3] * 3)
    edges = next(iter(parts.values())).edges
    rng = np.random.default_rng(0)
    a = rng.choice(["p", "q", "r"], 600)
    y = rng.normal(size=600)
    parts["z"] = eh.Cells.from_rows(y, y + rng.normal(size=600), sensitive_features=a, edges=edges)
    found = eh.monitor(parts)
    assert not math.isnan(found.looks["independence"][-1].value)


def table(n=4000):
    rng = np.random.default_rng(0)
    day = np.datetime64("2024-01-01") + rng.integers(0, 366, n)
    a = rng.choice(["p", "q"], n)
    frame = pd.DataFrame({"day": day, "a": a, "w": 1.0, "n": 1})
    frame["s"] = rng.normal(size=n) + 0.5 * (a == "q")
    frame["y"] = frame["s"] + rng.normal(size=n)
    return frame


def test_tables_of_every_kind_and_dates_as_text():
    frame = table()
    names = {"time": "day", "y_pred": "s", "y_true": "y", "sensitive_features": "a"}
    want = eh.monitor(frame, **names)
    assert want.periods[:2] == ("2024-01", "2024-02")
    assert len(want.periods) == 12
    text = frame.assign(day=frame["day"].astype(str))
    for other in (pl.DataFrame(frame), pl.DataFrame(frame).to_arrow(), text):
        assert eh.monitor(other, **names).looks == want.looks
    weighted = eh.monitor(frame, sample_weight="w", frequency="n", **names)
    assert weighted.looks["independence"][0].value == pytest.approx(
        want.looks["independence"][0].value
    )


def test_labels_sort_as_time_does():
    days = [datetime.date(2024, 12, 30), datetime.date(2024, 3, 7)]
    import narwhals.stable.v2 as nw

    rows = nw.from_native(pl.DataFrame({"d": days}), eager_only=True)
    want = {
        "day": ["2024-12-30", "2024-03-07"], "week": ["2025-W01", "2024-W10"],
        "month": ["2024-12", "2024-03"], "quarter": ["2024-Q4", "2024-Q1"], "year": ["2024"] * 2,
    }  # fmt: skip
    for period, labels in want.items():
        keys = rows.select(**time_keys(rows, "d", period)).rows()
        named = name_periods(keys, period)
        assert [named[key] for key in keys] == labels
    assert list(name_periods([("9",), ("10",), ("9",)], None).values()) == ["1: 9", "2: 10"]


def test_spending_adds_up_to_the_level():
    assert sum(spent(0.05, t) for t in range(1, 100_000)) == pytest.approx(0.05, rel=1e-4)


def test_views(tmp_path):
    found = eh.monitor(series([0.2] * 8 + [1.2] * 4), limits={"independence": 0.05})
    page = found.to_html(tmp_path / "m.html").read_text()
    assert "Independence got worse: " in page
    with pytest.raises(FileExistsError):
        found.to_html(tmp_path / "m.html")
    assert len(found.to_frame()) == 12
    assert found.to_dict()["state"] == found.state
    assert len(found.plot().axes) == 1
    assert max(map(len, str(found).split("\n"))) <= 80


def test_messages():
    frame = table(200)
    names = {"time": "day", "y_pred": "s", "sensitive_features": "a"}
    with pytest.raises(ValueError, match="`period` must be None or one of day, week, month"):
        eh.monitor(frame, period="fortnight", **names)
    with pytest.raises(ValueError, match="`y_pred` must be a column of the table: there is no 'x'"):
        eh.monitor(frame, **{**names, "y_pred": "x"})
    with pytest.raises(ValueError, match="`time` must name a column of the table, got None"):
        eh.monitor(frame, y_pred="s", sensitive_features="a")
    with pytest.raises(ValueError, match="`time` must hold dates, got values of type Float64"):
        eh.monitor(frame, **{**names, "time": "s"})
    with pytest.raises(ValueError, match="`time` must hold dates, got text that is none"):
        eh.monitor(frame, **{**names, "time": "a"})
    with pytest.raises(ValueError, match="`y_true` must be given for separation"):
        eh.monitor(frame, criteria=["separation"], **names)
    with pytest.raises(ValueError, match="`level` must lie between 0 and 1, got 5"):
        eh.monitor(frame, level=5, **names)
    with pytest.raises(ValueError, match="`table` must be a path, a frame, a relation"):
        eh.monitor([1, 2], **names)
    other = series([0.0] * 2) | {"x": series([0.0], seed=3)["2020-01"]}
    with pytest.raises(ValueError, match=r"those of 'x' \(number 3 of 3\) have other ones"):
        eh.monitor(other)
    with pytest.raises(ValueError, match="`estimator` must be auto, logistic or lspc for cells"):
        eh.monitor(frame, estimator="knn", **names)


def counted(edges, scores, groups, weight=None):
    return eh.Cells.from_rows(
        None, scores, sensitive_features=groups, edges=edges, sample_weight=weight
    )


@pytest.fixture(scope="module")
def grid():
    wide = np.linspace(-8, 12, 1000)
    return eh.Cells.from_rows(None, wide, sensitive_features=np.arange(1000) % 2, edges=256).edges


def test_constant_scores_and_a_change_to_and_from_them(grid):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 500)
    dull, lively = counted(grid, np.ones(500), a), counted(grid, rng.normal(size=500) + a, a)
    assert eh.monitor(dict.fromkeys("abcd", dull)).state == "no change seen"
    (rise,) = eh.monitor({"a": dull, "b": dull, "c": lively}).alarms
    (fall,) = eh.monitor({"a": lively, "b": lively, "c": dull}).alarms
    assert (rise.since, fall.since) == ("c", "c")


def test_the_same_table_again_is_no_change(grid):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 10, 2000)
    part = counted(grid, rng.normal(size=2000) + 0.1 * a, a, rng.lognormal(size=2000))
    assert eh.monitor(dict.fromkeys("abcde", part)).state == "no change seen"


def test_all_scores_may_rise_alike(grid):
    rng = np.random.default_rng(0)
    series = {}
    for t in range(24):
        a = rng.integers(0, 2, 1000)
        series[f"{t:02d}"] = counted(grid, rng.normal(size=1000) + 0.5 * a + t / 6, a)
    assert eh.monitor(series).state == "no change seen"


def test_a_group_without_weight_is_not_there(grid):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 400)
    s = rng.normal(size=400)
    series = {"1": counted(grid, s, a), "2": counted(grid, s, a, 1.0 * (a == 0))}
    assert eh.monitor(series).looks["independence"][1].why == "one group only (0)"
    series["3"] = counted(grid, s[:9], a[:9])
    series["4"] = counted(grid, s[:30], np.full(30, None))
    found = eh.monitor(series)
    assert "fewer than 20 people" in str(found)
    assert "no people" in str(found)
    assert found.total.n_unknown == 30

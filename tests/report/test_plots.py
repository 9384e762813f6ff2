import matplotlib as mpl
import numpy as np
import pytest

import evenhand as eh
from evenhand.auditing.figures import gains_of

mpl.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def texts(figure):
    figure.canvas.draw()  # a glyph the font lacks would warn here, and warnings are errors
    return [t.get_text() for t in figure.findobj(mpl.text.Text)]


def test_plot_audit_shows_hostile_labels_as_they_are(hostile_audit):
    figure = hostile_audit.plot()
    found = texts(figure)
    assert len(figure.axes) == 3
    assert any("<script>alert(1)</scr" in t for t in found)
    assert r"a \$b\$ & " '"c" ' "'d'" in found
    assert not any(len(t) > 100 for t in found)


def test_figures_are_not_kept_by_pyplot_in_a_notebook(audit, path, monkeypatch):
    """It would draw them twice; a script shows them by `plt.show()`."""
    plt.close("all")
    assert audit.plot().axes
    assert len(plt.get_fignums()) == 1
    plt.close("all")
    monkeypatch.setattr(plt, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    for result in (audit, path):
        assert result.plot().axes
    assert plt.get_fignums() == []


def test_plot_audit_without_target():
    rng = np.random.default_rng(0)
    figure = eh.audit(None, rng.normal(size=60), sensitive_features=np.arange(60) % 2).plot()
    assert len(figure.axes) == 2


def test_plot_audit_says_which_groups_are_left_out():
    rng = np.random.default_rng(0)
    a = np.arange(1200) % 12
    figure = eh.audit(
        rng.normal(size=1200), rng.normal(size=1200), sensitive_features=a, estimator="logistic"
    ).plot()
    assert any("4 smaller groups not shown" in t for t in texts(figure))


def test_plot_audit_of_weights_and_proxies(case):
    for kind in ("weights", "proxy", "unknown"):
        c = case(kind, 3)
        assert texts(eh.audit(c.y, c.s, **c.fairness, estimator="logistic").plot())


def test_gains_are_shares_and_quantiles():
    before = np.arange(100.0)
    after = before + np.concatenate([np.full(30, 1.0), np.full(20, -1.0), np.zeros(50)])
    a, weight = np.repeat(["a", "b"], 50), np.r_[np.full(30, 2.0), np.full(70, 1.0)]
    pair, heavy = (
        eh.audit(None, {"old": before, "new": after}, sensitive_features=a, sample_weight=w,
                 estimator="logistic")
        for w in (None, weight)
    )  # fmt: skip
    table = gains_of(pair["old"], pair["new"])
    assert table["group"] == ["a", "b"]
    assert table["gain"] == pytest.approx([0.6, 0])
    assert table["loss"] == pytest.approx([0.4, 0])
    assert table["mean"] == pytest.approx([0.2, 0])
    assert gains_of(pair["old"], pair["new"], "low")["gain"] == pytest.approx([0.4, 0])
    assert gains_of(heavy["old"], heavy["new"])["gain"][0] == pytest.approx(0.75)


def test_missing_matplotlib_is_explained(audit, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ModuleNotFoundError, match=r"evenhand\[plot\]"):
        audit.plot()


def test_figures_are_methods_of_results():
    import evenhand as eh

    assert dir(eh.report) == ["About", "write_pack"]
    with pytest.raises(AttributeError, match="no attribute 'plot_everything'"):
        eh.report.plot_everything  # noqa: B018

"""Every script of the gallery, run from top to bottom as a reader would."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # an example that writes a file must not do so in the repository
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    drawn = set(plt.get_fignums())
    try:
        runpy.run_path(str(script), run_name="__main__")
        assert set(plt.get_fignums()) - drawn, "an example draws something"
    finally:
        plt.close("all")
    assert capsys.readouterr().out, "an example prints something"

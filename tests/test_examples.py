"""Every script of the gallery, run from top to bottom as a reader would."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_no_cell_ends_with_an_object_that_prints_as_an_address(script):
    """The gallery shows what the last line of a cell returns."""
    for cell in script.read_text(encoding="utf-8").split("# %%"):
        last = [line for line in cell.splitlines() if line and not line.startswith("#")][-1:]
        assert not any(".legend(" in line or ".plot(" in line for line in last if "=" not in line)


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

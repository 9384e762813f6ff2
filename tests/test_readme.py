"""Every command and every Python block of the README, run in order in an empty folder."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import sklearn

from evidence import read_table

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"#.*\bexit code (\d)")


def steps(text):
    """(kind, source) of what can be run, "python" and "evenhand", and of what it prints, "text"."""
    found = []
    for language, body in BLOCK.findall(text):
        if language in ("python", "py", "text"):
            found.append(("text" if language == "text" else "python", body))
        elif language in ("console", "bash", "shell", "sh"):
            lines = re.sub(r"\s*\\\n\s*", " ", body).splitlines()
            lines = [line.strip().removeprefix("$ ") for line in lines]
            found += [("evenhand", line) for line in lines if line.startswith("evenhand ")]
    return found


def test_steps_are_found_in_their_order():
    text = (
        "```console\n$ evenhand demo\noutput\n$ ls\n```\n```python\nx = 1\n```\n"
        "```bash\npip install evenhand\nevenhand audit a.csv \\\n    -y y\n```\n```json\n{}\n```\n"
    )
    assert steps(text) == [
        ("evenhand", "evenhand demo"),
        ("python", "x = 1\n"),
        ("evenhand", "evenhand audit a.csv -y y"),
    ]


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_readme_repeats_what_was_measured():
    """How often a limit is exceeded on new people, certified or not; the time of the first call."""
    rows = read_table("certify")
    certified, plain = (
        sorted(100 * float(row[name]) for row in rows)
        for name in ("certified_violations", "plain_violations")
    )
    words = f"{certified[0]:.2g} to {certified[-1]:.2g}% of models exceed it, else "
    text = README.read_text(encoding="utf-8")
    assert f"{words}{plain[0]:.2g} to {plain[-1]:.2g}%" in text
    first = next(r for r in read_table("cold_start") if r["what"] == "first audit")
    assert f"about {float(first['cpu_seconds']):.0f} seconds of CPU time" in text


@pytest.mark.parametrize(
    ("repository", "published"),
    [
        ("", "See the guide, [Z](https://z.org/) and .\n"),
        (
            "https://a.org/b/",
            "See [the guide](https://a.org/b/blob/main/docs/guide.md), [Z](https://z.org/) and "
            "![page](https://a.org/b/raw/main/page.png).\n",
        ),
    ],
)
def test_links_on_a_package_index_lead_somewhere_or_are_words(repository, published):
    text = "See [the guide](docs/guide.md), [Z](https://z.org/) and ![page](page.png).\n"
    hook = runpy.run_path(str(README.with_name("hatch_build.py")))
    assert hook["published"](text, repository) == published
    readme = hook["published"](README.read_text(encoding="utf-8"), "")
    assert not re.search(r"\]\((?!\w+:)", readme)


@pytest.mark.slow
def test_readme(tmp_path, monkeypatch, capsys):
    found = steps(README.read_text(encoding="utf-8"))
    assert {kind for kind, _ in found} == {"evenhand", "python", "text"}
    from typer.testing import CliRunner

    from evenhand.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict = {"__name__": "readme"}
    # Readers may switch on metadata routing; other tests must not notice.
    with sklearn.config_context():
        for kind, source in found:
            if kind == "text":
                shown, cut, _ = source.strip().partition("\n...")
                printed = capsys.readouterr().out.strip()
                assert printed.startswith(shown) if cut else printed == shown, printed
                continue
            if kind == "python":
                exec(compile(source, "README.md", "exec"), namespace)
                continue
            expected = CODE.search(source)
            result = CliRunner().invoke(app, shlex.split(source, comments=True)[1:])
            wanted = int(expected[1]) if expected else 0
            assert result.exit_code == wanted, f"{source}\n{result.output}"

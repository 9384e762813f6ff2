"""Evidence: every study is registered, stamped and shown, and pages are those of their tables."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import replace
from importlib import import_module

import pytest

import evidence
import run
from evidence import RESULTS, ROOT, STAMP, read_facts, read_stamps, read_table, write_table
from pages import DOCS, build_pages, sections
from registry import STUDIES, list_ages

PAPER = [s.name for s in STUDIES.values() if s.page.startswith("reproduction")]
STAMPED = dict(zip(STAMP, ("abc", "2026-01-02", "0.5", "numpy 2"), strict=True))


@pytest.fixture(scope="module")
def built():
    return build_pages()


def test_pages_are_those_of_their_tables(built):
    for path, text in built.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run research/run.py --pages"


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_a_study_is_whole(study):
    module, function = study.run.split(":")
    assert f"def {function}(setting: Setting)" in (
        ROOT / "research" / "studies" / f"{module}.py"
    ).read_text(encoding="utf-8")
    for path in study.sources:
        assert (ROOT / path).exists(), path
    for stamp in read_stamps(study.name):
        assert re.fullmatch(r"[0-9a-f]{10}\+?", stamp["commit"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", stamp["date"])
    rows = read_table(study.name)
    assert rows
    assert not study.part or study.part in rows[0]


@pytest.mark.parametrize(
    "study", [s for s in STUDIES.values() if s.page], ids=lambda study: study.name
)
def test_a_study_is_on_its_page(study):
    name, _, section = study.page.partition(": ")
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert f"{{evidence}} {name}" in page
    if section:
        assert f"## {section}" in page


def test_every_module_of_studies_is_in_the_registry_or_serves_one_that_is():
    made = {path.stem for path in (ROOT / "research" / "studies").glob("*.py")} - {"__init__"}
    assert made - {s.run.split(":")[0] for s in STUDIES.values()} == {"methods", "atlas_methods"}


def test_what_research_takes_from_the_package_is_there():
    """Studies reach behind the public names, inside functions too: a move there must reach here."""
    for path in (ROOT / "research").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "module", None) or ""
            if not isinstance(node, ast.ImportFrom) or name.split(".")[0] != "evenhand":
                continue
            optional = name.split(".")[1:2]
            if optional in (["torch"], ["distributed"], ["boosting"]):
                pytest.importorskip({"torch": "torch"}.get(optional[0], "xgboost"))
            module = import_module(name)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    import_module(f"{name}.{alias.name}")


def test_every_table_belongs_to_a_study():
    assert {path.stem for path in RESULTS.glob("*.csv")} == STUDIES.keys()
    assert {path.stem for path in RESULTS.glob("*.json")} == STUDIES.keys()


@pytest.mark.parametrize("name", STUDIES)
def test_no_table_was_edited_by_hand(name):
    assert read_facts(name)["sha256"] == evidence.hash_file(RESULTS / f"{name}.csv")


def test_tables_are_replaced_whole_and_rows_keep_their_stamps(tmp_path):
    path = write_table(tmp_path / "some.csv", [{"a": 1.0 / 3.0, "b": "x"}], STAMPED, {"seed": 0})
    assert path.read_text() == (
        "a,b,commit,date,load,versions\n0.333333,x,abc,2026-01-02,0.5,numpy 2\n"
    )
    with pytest.raises(ValueError, match="broken"):
        write_table(path, broken(), STAMPED)
    assert evidence.read_numbers("some", tmp_path) == [{"a": 0.333333, "b": "x"}]
    assert read_facts("some", tmp_path) == {"seed": 0, "sha256": evidence.hash_file(path)}
    kept = read_table("some", tmp_path, stamped=True)
    write_table(path, [*kept, {"a": 2, "c": ""}], {**STAMPED, "commit": "def"})
    assert [row["commit"] for row in read_table("some", tmp_path, stamped=True)] == ["abc", "def"]
    assert [stamp["commit"] for stamp in read_stamps("some", tmp_path)] == ["abc", "def"]
    assert not list(tmp_path.glob("*tmp*"))


def broken():
    yield {"a": 2.0}
    raise ValueError("broken")


def test_a_stamp_names_commit_load_and_versions():
    stamp = evidence.make_stamp(["pytest", "no-such-package"])
    assert tuple(stamp) == STAMP
    assert stamp["commit"].rstrip("+") == evidence.git("rev-parse", "--short=10", "HEAD")
    assert float(stamp["load"]) >= 0
    for word in ("evenhand ", "numpy ", "pytest ", "Python 3.", " cores"):
        assert word in stamp["versions"]
    assert "no-such-package" not in stamp["versions"]


def forget():
    """Ask git again."""
    for function in (evidence.last_change, evidence.is_edited, evidence.fingerprint):
        function.cache_clear()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of two files, and how to change one of them."""
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setattr(evidence, "RESULTS", tmp_path)
    forget()

    def commit(name: str, text: str = "x\n") -> str:
        with (tmp_path / name).open("a") as file:
            file.write(text)
        words = ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", name]
        for command in (["add", name], words):
            subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
        return evidence.git("rev-parse", "--short=10", "HEAD")

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    yield tmp_path, commit
    forget()


def test_a_table_is_stale_once_what_it_measures_has_changed(repository, monkeypatch):
    folder, commit = repository
    monkeypatch.setattr(evidence, "read_stamps", lambda name: read_stamps(name, folder))
    sources = ("measured.py",)
    commit("measured.py")
    write_table(folder / "t.csv", [{"a": 1}], {**STAMPED, "commit": commit("measured.py")})
    commit("other.py")
    assert [stale for *_, stale in evidence.find_stale("t", sources)] == [""]
    changed = commit("measured.py")
    forget()
    ((*_, stale),) = evidence.find_stale("t", sources)
    assert "before the last change of measured.py" in stale
    assert changed[:7] in stale
    write_table(folder / "t.csv", [{"a": 1}], {**STAMPED, "commit": "0123456789"})
    ((*_, stale),) = evidence.find_stale("t", sources)
    assert stale == "measured at 0123456789, which this copy does not know"
    assert evidence.find_stale("never", sources)[0][2] == "never measured"


def test_words_make_no_table_stale_and_code_does(repository, monkeypatch):
    folder, commit = repository
    monkeypatch.setattr(evidence, "read_stamps", lambda name: read_stamps(name, folder))
    sources = ("measured.py",)
    stamp = {**STAMPED, "commit": commit("measured.py", 'def f():\n    "One."\n    return 1\n')}
    write_table(folder / "t.csv", [{"a": 1}], stamp)
    file, seen = folder / "measured.py", []
    for text in ('def f():\n    "Two."\n    # Why.\n    return 1\n', "def f():\n    return 2\n"):
        file.write_text("")
        file.write_text(text)
        forget()
        seen.append((evidence.find_stale("t", sources)[0][2], evidence.fingerprint(sources)))
        commit("measured.py", "")
        forget()
        seen.append((evidence.find_stale("t", sources)[0][2], evidence.fingerprint(sources)))
    (words, old), (kept, same), (edited, before), (stale, after) = seen
    assert words == kept == ""
    assert old == same == before != after
    assert edited.endswith("before changes that are not committed")
    assert "before the last change of measured.py" in stale
    (folder / "data.txt").write_text("a")
    assert evidence.is_edited(("data.txt",))


def test_the_site_says_how_old_tables_are():
    lines = list_ages("accuracy")
    assert len(lines) >= 8
    assert all(re.match(r"\w+: measured at [0-9a-f]{10}", line) for line in lines)


@pytest.fixture
def measured(repository, monkeypatch):
    """A table of what measured.py does, on a page that says how old it is; how to commit there."""
    folder, commit = repository
    commit("measured.py")
    stamp = {**STAMPED, "commit": evidence.git("rev-parse", "--short=10", "HEAD")}
    write_table(folder / "atlas.csv", [{"a": 1}], stamp)
    one = replace(STUDIES["atlas"], measured=("measured.py",), run="none:none")
    for name, value in (("STUDIES", {"atlas": one}), ("ROOT", folder)):
        monkeypatch.setattr(sections, name, value)
    for where in (sections, evidence):
        monkeypatch.setattr(where, "read_stamps", lambda name: read_stamps(name, folder))
    (folder / "docs").mkdir()
    page = folder / "docs" / "measured.md"
    page.touch()
    page.write_text(sections.older())

    def is_true():
        forget()
        return sections.older() == (folder / "docs" / "measured.md").read_text()

    yield folder, commit, is_true
    forget()


def test_a_page_that_hides_that_code_is_newer_than_its_table_is_noticed(measured):
    folder, commit, is_true = measured
    assert "Of 1 tables, none have rows" in sections.older()
    commit("other.py")
    assert is_true()
    with (folder / "measured.py").open("a") as file:
        file.write("y")
    assert not is_true()
    commit("measured.py")
    assert not is_true()
    (folder / "docs" / "measured.md").write_text(sections.older())
    assert "`atlas`." in sections.older()
    commit("measured.py")
    assert is_true()


def test_a_copy_without_history_leaves_the_page_as_it_is(measured):
    folder, _, is_true = measured
    write_table(folder / "atlas.csv", [{"a": 1}], {**STAMPED, "commit": "0123456789"})
    assert is_true()
    (folder / "docs" / "measured.md").write_text("`atlas`.")
    assert "`atlas`." in sections.older()


def test_a_table_that_was_edited_by_hand_is_noticed(tmp_path):
    path = write_table(tmp_path / "some.csv", [{"a": 1.5}], STAMPED)
    path.write_text(path.read_text().replace("1.5", "1.4"))
    assert read_facts("some", tmp_path)["sha256"] != evidence.hash_file(path)


def test_each_planted_defect_that_survives_is_explained():
    from pages import defects

    survivors = {(r["seed"], r["module"], r["line"]) for r in defects.unnoticed()}
    assert survivors == defects.EXPLAINED.keys()
    assert {kind for kind, _ in defects.EXPLAINED.values()} <= defects.KINDS


def test_a_defect_keeps_its_first_outcome():
    rows = read_table("mutants")
    assert {r["outcome"] for r in rows} <= {"noticed", "survives", "old alone"}
    assert not any(r["later"] for r in rows if r["outcome"] == "noticed")
    assert all(r["new_tests"] for r in rows if r["outcome"] == "noticed")
    assert not any(r["new_tests"] for r in rows if r["outcome"] != "noticed")


def test_a_goal_about_no_row_is_noticed():
    from pages.goals import Goal, _line

    nobody = Goal("nothing", "≤ 1", "cells", "n", 1.0, ("n",), lambda row: False)
    with pytest.raises(LookupError, match=r"no row of cells\.csv is about: nothing"):
        _line(nobody)


def test_goals_are_compared_from_the_right_side():
    from pages.goals import Goal, _line

    lines = [
        _line(Goal("rows", goal, "cells", "n", limit, ("n",), lambda r: r["n"] == "10000", share))
        for goal, limit, share in (
            ("≤ 1", 1.0, 1.0), ("≥ 1", 1.0, 1.0), ("≥ 85 % of them", 1e9, 0.85), ("none", 1.0, 0.0)
        )
    ]  # fmt: skip
    assert [line[2].startswith("**0 of") for line in lines] == [True, False, True, False]
    assert [line[3] for line in lines] == ["n 10000: 1e+04", "–", "0.0%", "n 10000: 1e+04"]


@pytest.mark.slow
def test_quick_run_of_all_that_the_paper_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "THREADS", ())
    for name in PAPER:
        run.main([name, "--quick", "--out", str(tmp_path)])
    made = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert not [name for name in made if "tmp" in name]
    assert {name.removesuffix(".csv") for name in made if name.endswith(".csv")} == {*PAPER}
    for name in PAPER:
        # The points behind a table took the time that is noted with the table.
        assert name == "penalty_path" or read_facts(name, tmp_path)["compute_seconds"] > 0
        (stamp,) = read_stamps(name, tmp_path)
        assert "numpy" in stamp["versions"]
    rows = read_table("thresholds", tmp_path)
    assert {row["league"] for row in rows} == {"attribute not needed", "attribute needed"}
    met = [row for row in rows if row["r2"]]
    assert met
    assert all(float(row["value"]) <= float(row["threshold"]) for row in met)
    pictures = [tmp_path / name for name in made if name.endswith(".png")]
    assert len(pictures) == 15
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_parts_are_run_alone_and_other_rows_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "THREADS", ())
    old = [{"study": "size", "n": 1}, {"study": "rough", "n": 2}]
    write_table(tmp_path / "calibration.csv", old, {**STAMPED, "commit": "old"})
    run.main(["calibration", "--quick", "--only", "rough", "--out", str(tmp_path)])
    rows = read_table("calibration", tmp_path, stamped=True)
    assert {(row["study"], row["commit"] == "old") for row in rows} == {
        ("size", True),
        ("rough", False),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such"], "no study no_such; there are frontier_communities, "),
        (["cells", "rough", "--only", "x"], "`--only` must come with one study"),
    ],
)
def test_bad_commands_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        run.main(words)
    assert message in capsys.readouterr().err


def test_the_list_names_all_studies(capsys):
    run.main(["--list"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [*STUDIES]


def test_the_stack_is_not_behind_the_booster_without_fairness():
    rows = [r for r in read_table("stack") if r["method"] == "stack, posterior"]
    rows = [r for r in rows if r["bound"] == "none"]
    assert len(rows) == 8
    assert min(float(r["r2"]) - float(r["booster_r2"]) for r in rows) > -0.002


def test_the_atlas_has_cells_in_both_leagues():
    from pages import atlas

    cells = atlas.cells(evidence.read_numbers("atlas"))
    for league in atlas.LEAGUES:
        _, total, good = atlas.against(cells, league)
        assert 0 < good <= total

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import feather, parquet
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli.app import app
from evenhand.training.model_files import load_table_model

BASIC = ["--target", "y", "--prediction", "s", "--sensitive", "race"]
LONG = "x" * 10_000
HOSTILE = ["<script>alert(1)</script>", "=cmd()", "😀", LONG, "a,b;c\t|", "[red]x[/red]"]


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def error(*arguments, code=2):
    """The message of a command that must fail without a traceback."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    # Lines are wrapped on a terminal only, but be independent of it.
    return " ".join(result.stderr.split())


def make_table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    a = np.arange(n) % 2
    y = rng.normal(size=n) + 0.5 * a
    return pa.table(
        {
            "id": np.arange(n) + 7,
            "y": y,
            "s": y + rng.normal(size=n) + a,
            "better": y + rng.normal(size=n),
            "race": np.array(["black", "white"])[a],
            "sex": np.array(["f", "m", "f"])[np.arange(n) % 3],
            "w": rng.uniform(0.5, 1.5, n),
        }
    )


@pytest.fixture
def table():
    return make_table()


@pytest.fixture
def scores(table, tmp_path):
    path = tmp_path / "scores.csv"
    arrow_csv.write_csv(table, path)
    return path


@pytest.fixture
def training(tmp_path):
    rng = np.random.default_rng(0)
    n = 500
    a = rng.integers(0, 2, n)
    x = rng.normal(size=n) + a
    gap = rng.normal(size=n)
    gap[::7] = np.nan
    city = np.array(["rome", "paris", "oslo"])[rng.integers(0, 3, n)].astype(object)
    city[::11] = None
    y = x + 0.3 * np.nan_to_num(gap) + (city == "oslo") + rng.normal(size=n)
    found = pa.table(
        {
            "row": np.arange(n),
            "x": x,
            "gap": pa.array(gap, from_pandas=True),
            "city": pa.array(city.tolist()),
            "name": [f"person {i}" for i in range(n)],
            "same": np.ones(n),
            "y": y,
            "race": np.array(["black", "white"])[a],
        }
    )
    path = tmp_path / "train.parquet"
    parquet.write_table(found, path)
    return path


# audit


def test_audit_prints_the_audit(scores, table):
    result = run("audit", scores, *BASIC)
    assert result.exit_code == 0
    expected = eh.audit(
        table["y"].to_numpy(), table["s"].to_numpy(), sensitive_features=table["race"].to_pylist(),
        random_state=0,
    )  # fmt: skip
    for m in expected.measures.values():
        assert f"{m.value:.4f}" in result.stdout
    assert "400 rows, 2 groups of 'race'" in result.stdout
    assert not result.stderr


def test_audit_json_is_json_alone(scores):
    result = run("audit", scores, *BASIC, "--sensitive", "sex", "--weight", "w", "--json")
    data = json.loads(result.stdout)
    assert data["format"] == "evenhand.audit"
    assert data["sensitive"] == "race × sex"
    assert len(data["groups"]["group"]) == 4
    assert data["checks"] == []


def test_audit_of_too_few_weighted_rows(table, tmp_path):
    weight = np.zeros(400)
    weight[[0, 1, 100, 101]] = 1.0
    path = tmp_path / "few.csv"
    arrow_csv.write_csv(table.set_column(table.column_names.index("w"), "w", [weight]), path)
    found = error("audit", path, *BASIC, "--weight", "w")
    assert "--weight must be positive in at least 5 rows with a known group, got 4 of 400" in found


def test_audit_without_target_measures_independence(scores):
    data = json.loads(run("audit", scores, "-s", "s", "-a", "race", "--json").stdout)
    assert list(data["measures"]) == ["independence"]


def test_audit_of_each_attribute(scores, tmp_path):
    out = tmp_path / "r.html"
    result = run("audit", scores, *BASIC, "-a", "sex", "--each", "--html", out)
    assert "groups of 'race × sex'" in result.stdout
    assert "groups of 'sex'" in result.stdout
    assert "Attribute 3: " in out.read_text(encoding="utf-8")
    alone = run("audit", scores, *BASIC, "--each")
    assert alone.exit_code == 0


def test_audit_of_each_attribute_as_json_keeps_every_name(table, tmp_path):
    path = tmp_path / "checks.csv"
    arrow_csv.write_csv(table.append_column("checks", table["sex"]), path)
    found = json.loads(run("audit", path, *BASIC, "-a", "checks", "--each", "--json").stdout)
    assert list(found["audits"]) == ["race", "checks", "race × checks"]
    assert found["checks"] == []


def test_audit_html(scores, tmp_path):
    out = tmp_path / "r.html"
    result = run("audit", scores, *BASIC, "--html", out)
    assert str(out) in result.stdout.replace("\n", "")
    assert "scores.csv (text separated by comma, UTF-8)" in out.read_text(encoding="utf-8")
    page = out.read_text(encoding="utf-8")
    for fact in ("Seed", "Command", "Weights", "SHA-256 of scores.csv"):
        assert f"<dt>{fact}</dt>" in page
    assert "exists already" in error("audit", scores, *BASIC, "--html", out)
    assert run("audit", scores, *BASIC, "--html", out, "--force").exit_code == 0
    message = error("audit", scores, *BASIC, "--html", tmp_path / "no" / "r.html")
    assert "in a folder that exists" in message


@pytest.mark.parametrize(
    ("limit", "judge", "code"),
    [("0.99", "value", 0), ("0.0", "value", 1), ("0.99", "upper", 0), ("0.0", "lower", 1)],
)
def test_fail_above_sets_the_exit_code(scores, limit, judge, code):
    arguments = (
        "audit",
        scores,
        *BASIC,
        "--fail-above",
        f"independence={limit}",
        "--judge-by",
        judge,
    )
    result = run(*arguments)
    assert result.exit_code == code
    assert ("within" if code == 0 else "above") in result.stdout
    checks = json.loads(run(*arguments, "--json").stdout)["checks"]
    assert checks[0]["passed"] is (code == 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fairness=0.1", "one of independence, separation, sufficiency"),
        ("separation", "must be CRITERION=LIMIT"),
        ("separation=often", "between 0 and 1, got 'often'"),
        ("separation=7", "between 0 and 1, got '7'"),
    ],
)
def test_fail_above_must_make_sense(scores, text, words):
    assert words in error("audit", scores, *BASIC, "--fail-above", text)


def test_fail_above_needs_the_target(scores):
    message = error("audit", scores, "-s", "s", "-a", "race", "--fail-above", "separation=0.1")
    assert "needs --target" in message


@pytest.mark.parametrize("kind", ["tsv", "csv.gz", "csv.xz", "csv.bz2", "csv.zst", "csv.zip",
                                  "parquet", "feather", "semicolon", "bar"])  # fmt: skip
def test_formats(table, tmp_path, kind):
    import bz2
    import gzip
    import lzma
    import zipfile

    path = tmp_path / f"scores.{kind}"
    text = pa.BufferOutputStream()
    marks = {"tsv": "\t", "semicolon": ";", "bar": "|"}
    arrow_csv.write_csv(table, text, arrow_csv.WriteOptions(delimiter=marks.get(kind, ",")))
    data = text.getvalue().to_pybytes()
    if kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "feather":
        feather.write_feather(table, path)
    elif kind == "csv.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("scores.csv", data)
    elif kind == "csv.zst":
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(data)
    else:
        pack = {"csv.gz": gzip.compress, "csv.xz": lzma.compress, "csv.bz2": bz2.compress}
        path.write_bytes(pack.get(kind, bytes)(data))
    found = json.loads(run("audit", path, *BASIC, "--json").stdout)
    assert found["n_rows"] == 400
    assert found["groups"]["group"] == ["black", "white"]


# bad input


def test_missing_file_suggests_a_near_one(scores):
    message = error("audit", scores.with_name("score.csv"), *BASIC)
    assert "There is no file" in message
    assert "Did you mean 'scores.csv'?" in message


def test_folder_is_not_a_table(tmp_path):
    assert "is a folder" in error("audit", tmp_path, *BASIC)


def test_unknown_column_suggests_the_nearest_and_lists_all(scores):
    message = error("audit", scores, "--target", "Y ", "-s", "s", "-a", "race")
    assert "--target names 'Y ', which" in message
    assert "Did you mean 'y'?" in message
    assert "Its columns are 'id', 'y', 's', 'better', 'race', 'sex', 'w'" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("\ufeff", "is empty"),
        ("y,s,race\n", "has column names and no rows"),
        ("y,s,race\nlow,1,a\n2,2,b\n", "must hold numbers: 1 of 2 values do not, the first"),
        ("y,s,race\nlow,1,a\n2,2,b\n", "Hint: name another column, or mend or empty these"),
        ("y,s,race\n,1,a\n,2,b\n", "has no values at all"),
        ("y,s,race\n1,1,\n2,2,\n", "--sensitive 'race' has no values at all"),
        ("y,y,s,race\n1,1,1,a\n2,2,2,b\n", "has 2 columns named 'y', so --target is ambiguous"),
        ("y,s,race\ninf,1,a\n2,2,b\n", "must be finite: 1 of 2 values are infinite, the first"),
        ("y,s,race\n1,-inf,a\n2,2,b\n", "The prediction, column 's'"),
        ("y,s,race\n,1,a\n2,2,b\n3,1,a\n", "is missing in 1 of 3 rows, the first being row 1"),
        ("y,s,race\n1,1,a\n2,2,b,5\n", "has 3 column names and a line with 4 fields"),
        ("y~s~race\n1~1~a\n2~2~b\n", "give it with --separator"),
        ("y,s,race\n1,1,a\n2,2,a\n", "must hold at least two groups"),
        ("y,s,race\n" + "".join(f"{i},{i},{i / 7}\n" for i in range(200)), "--sensitive"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path, text, words):
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    assert words in error("audit", path, *BASIC)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04 not really", "cannot be unpacked"),
        (b"\xd0\xcf\x11\xe0 old excel", "is a spreadsheet"),
        (b"\x1f\x8b broken", "cannot be unpacked"),
        (b"PAR1 broken", "is not a whole parquet file"),
        (b"ARROW1 broken", "is not a whole feather file"),
        (b"a,b\x00\x01\x02", "neither text nor Parquet nor Feather"),
    ],
)
def test_bad_files(tmp_path, data, words):
    path = tmp_path / "bad.bin"
    path.write_bytes(data)
    assert words in error("audit", path, *BASIC)


def test_a_zip_of_several_files_is_taken_for_a_spreadsheet(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("a", "1")
        archive.writestr("b", "2")
    assert "is a spreadsheet" in error("audit", tmp_path / "a.xlsx", *BASIC)


def test_separator_option(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("y~s~race\n" + "1~1~a\n2~3~b\n" * 20)
    found = json.loads(run("audit", path, *BASIC, "--separator", "~", "--json").stdout)
    assert found["n_rows"] == 40
    assert "must be one character" in error("audit", path, *BASIC, "--separator", "~~")


def test_drop_missing_says_how_many(tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text("y,s,race\n" + "1,1,a\n2,NA,b\n?,3,b\n2,3,b\n" * 20)
    result = run("audit", path, *BASIC, "--drop-missing", "--json")
    assert "40 rows without a target, score, weight, frequency or cluster are" in result.stderr
    assert json.loads(result.stdout)["n_rows"] == 40
    path.write_text("y,s,race\n" + "1,,a\n,1,b\n" * 5)
    assert "No row is left" in error("audit", path, *BASIC, "--drop-missing")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_encodings(tmp_path, encoding):
    path = tmp_path / "text.csv"
    path.write_bytes(("y,s,Größe\n" + "1,1,é\n2,3,Ö\n" * 20).encode(encoding))
    result = run("audit", path, "-y", "y", "-s", "s", "-a", "Größe", "--json")
    found = json.loads(result.stdout)
    assert found["groups"]["group"] == ["Ö", "é"] or found["groups"]["group"] == ["é", "Ö"]


def test_latin_1_far_down_the_file(tmp_path):
    path = tmp_path / "late.csv"
    path.write_bytes(b"y,s,race\n" + b"1,1,a\n2,3,b\n" * 20_000 + b"1,2,\xe9\n2,2,\xe9\n")
    found = json.loads(run("audit", path, *BASIC, "--json", "--estimator", "logistic").stdout)
    assert found["groups"]["group"] == ["a", "b", "é"]


def test_groups_are_told_apart_as_they_are_written(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("y,s,race\n" + "1,1,01\n2,3,1\n2,2,NA\n3,2,1.0\n" * 20)
    found = json.loads(run("audit", path, *BASIC, "--json", "--estimator", "logistic").stdout)
    assert found["groups"]["group"] == ["01", "1", "1.0", "NA"]
    gaps = ("--missing", "NA", "--estimator", "logistic")
    found = json.loads(run("audit", path, *BASIC, "--json", *gaps).stdout)
    assert found["groups"]["group"] == ["01", "1", "1.0"]
    assert found["n_unknown"] == 20


def test_a_column_whose_type_shows_late(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("y,s,race\n" + "1,1,0\n2,3,1\n" * 150_000 + "1.5,2,0\n2,2,unsure\n")
    found = json.loads(run("audit", path, *BASIC, "--json", "--estimator", "lspc").stdout)
    assert found["groups"]["group"] == ["0", "1", "unsure"]


def test_decimal_commas(tmp_path):
    path = tmp_path / "european.csv"
    path.write_text("y;s;race\n" + "1,5;1,25;a\n2,5;3;b\n" * 20)
    found = json.loads(run("audit", path, *BASIC, "--json").stdout)
    assert found["groups"]["mean_target"] == pytest.approx([1.5, 2.5])


def test_hostile_labels_and_names(tmp_path):
    name = "<script>alert(1)</script>"
    labels = HOSTILE * 30
    rng = np.random.default_rng(0)
    path = tmp_path / "hostile.csv"
    arrow_csv.write_csv(
        pa.table({"y": rng.normal(size=180), "s": rng.normal(size=180), name: labels}), path
    )
    out = tmp_path / "r.html"
    arguments = ("audit", path, "-y", "y", "-s", "s", "-a", name)
    result = run(*arguments, "--html", out)
    assert result.exit_code == 0
    assert "<script>alert(1)</script>" in result.stdout
    assert "[red]x[/red]" in result.stdout
    assert LONG not in result.stdout
    data = json.loads(run(*arguments, "--json").stdout)
    assert set(data["groups"]["group"]) == set(HOSTILE)
    assert "<script>alert" not in out.read_text(encoding="utf-8")


def test_empty_cells_mean_not_known(tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text("y,s,race\n" + "1,1,a\n2,3,b\n2,2,\n" * 20)
    found = json.loads(run("audit", path, *BASIC, "--json").stdout)
    assert found["n_unknown"] == 20
    assert "20 rows (33.3%) have no known group" in run("audit", path, *BASIC).stdout


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    path = tmp_path / "esc.csv"
    path.write_text("y,s,race\n" + "1,1,\x1b[2Ja\n2,3,b\n" * 20)
    result = run("audit", path, *BASIC)
    assert "\x1b" not in result.output


def test_warnings_become_notes(tmp_path):
    path = tmp_path / "lonely.csv"
    path.write_text("y,s,race\n" + "1,1.5,a\n3,1,a\n2,3,b\n1,2,b\n" * 10 + "1,1,lonely\n")
    result = run("audit", path, *BASIC)
    assert result.exit_code == 0
    assert result.stderr.startswith("Note: Group 'lonely' has a single row")


def test_messages_speak_of_options_not_of_arguments(tmp_path, scores):
    path = tmp_path / "one.csv"
    path.write_text("y,s,race\n" + "1,1.5,a\n3,1,a\n" * 10)
    message = error("audit", path, *BASIC)
    assert message.endswith("found only 'a' in 20 rows with a known group.")
    message = error("audit", scores, *BASIC, "--html", tmp_path / "none" / "report.html")
    assert message.startswith("Error: The file to write must be in a folder that exists")


def test_bad_options(scores):
    assert "--confidence must lie between 0 and 1" in error(
        "audit", scores, *BASIC, "--confidence", "7"
    )
    assert "magic" in error("audit", scores, *BASIC, "--estimator", "magic")
    seed = run("audit", scores, *BASIC, "--seed", "-1")
    assert seed.exit_code == 2
    assert "Invalid value for '--seed'" in seed.output
    usage = run("audit", scores, "--target", "y")
    assert usage.exit_code == 2
    assert "Missing option" in usage.output


def test_debug_shows_the_traceback(scores):
    words = ["audit", str(scores), "-y", "no", "-s", "s", "-a", "race"]
    assert error(*words).startswith("Error: --target names 'no'")
    command = [sys.executable, "-m", "evenhand", *words, "--debug"]
    loud = subprocess.run(command, capture_output=True, text=True)
    assert "Traceback" in loud.stderr
    assert loud.returncode == 1


def test_defects_have_a_code_of_their_own(scores, monkeypatch):
    from evenhand.cli import audits

    monkeypatch.setattr(audits, "run_audit", lambda *_: 1 / 0)
    assert "This should not happen (ZeroDivisionError" in error("audit", scores, *BASIC, code=3)


def test_interruption(scores, monkeypatch):
    from evenhand.cli import audits

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(audits, "run_audit", stop)
    assert "Interrupted" in error("audit", scores, *BASIC, code=130)


def test_help_teaches():
    text = run("--help").output
    assert "evenhand demo" in text
    assert "Exit codes" in text
    for name in ("audit", "compare", "frontier", "predict", "demo"):
        assert "evenhand" in run(name, "--help").output
    assert run("--version").output == f"evenhand {eh.__version__}\n"


# compare


def test_compare_two_columns(scores):
    result = run("compare", scores, "-y", "y", "-s", "s", "-s", "better", "-a", "race")
    assert result.exit_code == 0
    assert "from s to better" in result.stdout
    assert "Change of each person's score" in result.stdout
    data = json.loads(
        run("compare", scores, "-y", "y", "-s", "s", "-s", "better", "-a", "race", "--json").stdout
    )
    assert list(data["audits"]) == ["s", "better"]


def test_compare_needs_two_models(scores):
    assert "There is one model only" in error("compare", scores, *BASIC)


def test_a_model_is_not_compared_with_itself(scores):
    hint = "Hint: give each model once; for one model use 'evenhand audit'."
    message = error("compare", scores, *BASIC, "-s", "s")
    assert "'--prediction s' is given twice" in message
    assert message.endswith(hint)


def test_compare_can_leave_out_rows_with_gaps(table, tmp_path):
    def path(name, **gaps):
        columns = {n: table[n].to_pylist() for n in table.column_names}
        for column, rows in gaps.items():
            for row in rows:
                columns[column][row] = None
        arrow_csv.write_csv(pa.table(columns), tmp_path / name)
        return tmp_path / name

    first = path("first.csv", y=[0], s=[1])
    arguments = ("compare", first, "-y", "y", "-s", "s", "-s", "better", "-a", "race")
    assert error(*arguments).endswith("Hint: leave these rows out with --drop-missing.")
    result = run(*arguments, "--drop-missing", "--json")
    assert "2 rows without a target, score, weight, frequency or cluster are" in result.stderr
    assert json.loads(result.stdout)["audits"]["better"]["n_rows"] == 398


# frontier and predict

QUICK = ["--points", "4", "--folds", "2"]


@pytest.mark.parametrize("group_features", ["none", "posterior", "attribute"])
def test_frontier_then_predict(training, tmp_path, group_features):
    out = tmp_path / "fair"
    result = run(
        "frontier", training, "--target", "y", "--sensitive", "race", "--drop", "name",
        "--out", out, "--max-unfairness", "0.05", *QUICK, "--group-features", group_features,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert {p.name for p in out.iterdir()} == {"report.html", "path.csv", "model.json"}
    report = (out / "report.html").read_text(encoding="utf-8")
    for words in ("missing values are set to the median", "missing is a level of its own",
                  "like a row number", "it has the same value in every row",
                  "it is sensitive", "--drop says so"):  # fmt: skip
        assert words in report
    new = tmp_path / "new.csv"
    frame = parquet.read_table(training)
    arrow_csv.write_csv(frame, new)
    done = run("predict", out / "model.json", new, "--out", tmp_path / "scored.csv")
    assert done.exit_code == 0, done.output
    scored = arrow_csv.read_csv(tmp_path / "scored.csv")
    prediction = scored["prediction"].to_numpy()
    # The chosen model explains what the report says, and a little more on its own rows.
    y = frame["y"].to_numpy()
    r2 = 1 - ((y - prediction) ** 2).mean() / y.var()
    about = json.loads((out / "model.json").read_text())["about"]["held_out"]["r2"]
    assert about - 0.05 < r2 < about + 0.1


def test_predict_copies_every_cell_unchanged(training, tmp_path):
    out = tmp_path / "fair"
    run(
        "frontier",
        training,
        "-y",
        "y",
        "-a",
        "race",
        "--drop",
        "city",
        "-o",
        out,
        "-m",
        "0.5",
        *QUICK,
    )
    new = tmp_path / "new.csv"
    text = 'code;x;gap;text\n007;1.50;;"=1+1"\n010;2.0;0.5;"a;""b"""\n'
    new.write_text(text)
    assert (
        run("predict", out, new, "-o", tmp_path / "scored.tsv", "--column", "fair").exit_code == 0
    )
    lines = (tmp_path / "scored.tsv").read_text().splitlines()
    assert lines[0] == "code\tx\tgap\ttext\tfair"
    assert lines[1].startswith("007\t1.50\t\t=1+1\t")
    assert lines[2].startswith('010\t2.0\t0.5\t"a;""b"""\t')
    typed = tmp_path / "scored.parquet"
    assert run("predict", out, new, "-o", typed).exit_code == 0
    assert parquet.read_table(typed).schema.field("x").type == pa.float64()
    assert run("predict", out, new, "-o", tmp_path / "s.feather").exit_code == 0
    assert run("predict", out, new, "-o", tmp_path / "s.csv.gz").exit_code == 0
    assert "exists already" in error("predict", out, new, "-o", typed)
    assert "must end in" in error("predict", out, new, "-o", tmp_path / "scored.doc")
    assert "has a column 'x' already" in error(
        "predict", out, new, "-o", tmp_path / "q.csv", "--column", "x"
    )
    new.write_text("x;age\n1;2\n")
    assert "The model names 'gap', which" in error("predict", out, new, "-o", tmp_path / "q.csv")
    new.write_text("x;gap;gap\n1;2;3\n")
    assert "has 2 columns named 'gap'" in error("predict", out, new, "-o", tmp_path / "q.csv")
    new.write_text("x;gap;a;a\n1;2;3;4\n")
    assert "columns of the same name" in error("predict", out, new, "-o", tmp_path / "q.csv")
    new.write_text("x;gap\nlow;2\n")
    assert "held numbers in training and holds text now" in error(
        "predict", out, new, "-o", tmp_path / "q.csv"
    )
    assert not list(tmp_path.glob(".*")), "temporary files are left"


def test_text_that_looks_like_numbers_is_text_in_new_rows_too(tmp_path):
    """Codes "02139" and "K1A" in training; new rows may hold codes of digits alone."""
    rng = np.random.default_rng(0)
    k, a = rng.integers(0, 3, 300), rng.integers(0, 2, 300)
    x = rng.normal(size=300)
    table = {
        "y": x + 5.0 * k + a + rng.normal(size=300),
        "x": x,
        "zip": np.array(["02139", "K1A", "90210"])[k],
        "race": a + 1.0,
    }
    train, new, out = tmp_path / "train.csv", tmp_path / "new.csv", tmp_path / "fair"
    arrow_csv.write_csv(pa.table(table), train)
    options = ("-y", "y", "-a", "race", "-m", "0.9", "--group-features", "attribute")
    assert run("frontier", train, *options, "-o", out, *QUICK).exit_code == 0
    new.write_text("x,zip,race\n0,02139,1\n0,90210,1.0\n0,02139,\n")
    result = run("predict", out, new, "-o", tmp_path / "scored.csv")
    assert result.exit_code == 0
    assert "was not there in training" not in result.stderr
    lines = (tmp_path / "scored.csv").read_text().split()[1:]
    first, second, _ = (float(line.split(",")[-1]) for line in lines)
    assert second - first == pytest.approx(10.0, abs=1.0)


def test_a_failed_run_leaves_the_earlier_one_alone(training, tmp_path):
    out = tmp_path / "fair"
    out.mkdir()
    (out / "model.json").write_text("earlier")
    arguments = ("frontier", training, "-a", "race", "-o", out, *QUICK, "--force")
    error(*arguments, "-y", "nothing")
    assert "--max-unfairness must lie between 0 and 1" in error(*arguments, "-y", "y", "-m", "2")
    assert (out / "model.json").read_text() == "earlier"
    error("frontier", training, "-y", "nothing", "-a", "race", "-o", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_links_and_pipes_are_left_alone(training, scores, tmp_path):
    out = tmp_path / "fair"
    out.mkdir()
    (out / "model.json").symlink_to(tmp_path / "nowhere")
    arguments = ("frontier", training, "-y", "y", "-a", "race", "-o", out, *QUICK)
    for force in ((), ("--force",)):
        message = error(*arguments, *force)
        assert message.startswith("Error: The file to write must be a regular file or a new name")
        assert "is a symbolic link" in message
    os.mkfifo(tmp_path / "pipe")
    message = error("audit", scores, *BASIC, "--html", tmp_path / "pipe", "--force")
    assert "is a named pipe" in message
    assert [p.name for p in out.iterdir()] == ["model.json"]


def test_new_levels_are_counted(training, tmp_path):
    out = tmp_path / "fair"
    run(
        "frontier",
        training,
        "-y",
        "y",
        "-a",
        "race",
        "--drop",
        "gap",
        "-o",
        out,
        "-m",
        "0.5",
        *QUICK,
    )
    new = tmp_path / "new.csv"
    new.write_text("x,city\n1,rome\n1,atlantis\n")
    result = run("predict", out, new, "-o", tmp_path / "scored.csv")
    assert "1 rows have a value of 'city' that was not there in training" in result.stderr


def test_frontier_that_cannot_be_met_says_what_can(training, tmp_path):
    out = tmp_path / "fair"
    arguments = ("frontier", training, "-y", "y", "-a", "race", "-o", out, *QUICK)
    message = error(*arguments, "--max-unfairness", "0.0", "--min-accuracy", "0.99", code=1)
    assert "No point of the path has held-out independence ≤ 0 and R² ≥ 0.99" in message
    assert {p.name for p in out.iterdir()} == {"report.html", "path.csv"}
    assert "already holds report.html, path.csv" in error(*arguments)


def test_frontier_without_a_limit_chooses_nothing(training, tmp_path):
    out = tmp_path / "fair"
    arguments = ("frontier", training, "-y", "y", "-a", "race", "-o", out, *QUICK)
    result = run(*arguments)
    assert "No model was chosen" in result.stdout
    assert not (out / "model.json").exists()
    (out / "model.json").write_text("stale")
    assert run(*arguments, "--force").exit_code == 0
    assert not (out / "model.json").exists()
    assert "--certify needs" in error(*arguments, "--force", "--certify")


def test_frontier_bad_input(training, scores, tmp_path):
    out = ("-o", tmp_path / "out", *QUICK)
    assert "both name 'race'" in error("frontier", training, "-y", "race", "-a", "race", *out)
    assert "--drop names 'nmae'" in error(
        "frontier", training, "-y", "y", "-a", "race", "--drop", "nmae", *out
    )
    assert "must hold numbers" in error("frontier", training, "-y", "city", "-a", "race", *out)
    path = tmp_path / "two.csv"
    path.write_text("y,x,x,race\n" + "1,2,3,a\n2,2,1,b\n" * 20)
    assert "has 2 columns named 'x'" in error("frontier", path, "-y", "y", "-a", "race", *out)
    assert "no column left" in error("frontier", path, "-y", "y", "-a", "race", "--drop", "x", *out)
    path.write_text("y,x,race\n" + "1,2,a\n2,2,b\n" * 20)
    assert "No column can be used as a feature" in error(
        "frontier", path, "-y", "y", "-a", "race", *out
    )
    path.write_text("y,x,race\n" + "1,inf,a\n2,2,b\n" * 20)
    assert "must be finite: row 1 is infinite" in error(
        "frontier", path, "-y", "y", "-a", "race", *out
    )
    assert "--points must be" in error(
        "frontier", training, "-y", "y", "-a", "race", *out, "--points", "1"
    )
    assert "is a file" in error("frontier", training, "-y", "y", "-a", "race", "-o", scores)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is no JSON"),
        ("[]", "is not a model written by evenhand"),
        ('{"format": "evenhand.model", "version": 9}', "has version 9 of the format"),
        ('{"format": "evenhand.model", "version": 2}', "is damaged"),
    ],
)
def test_bad_models(scores, tmp_path, text, words):
    path = tmp_path / "model.json"
    path.write_text(text)
    assert words in error("predict", path, scores, "-o", tmp_path / "o.csv")
    assert "There is no model" in error(
        "predict", tmp_path / "no", scores, "-o", tmp_path / "o.csv"
    )


def test_damaged_models_are_bad_input_not_a_defect(training, tmp_path):
    out = tmp_path / "fair"
    options = ("-y", "y", "-a", "race", "-m", "0.9", "--group-features", "attribute")
    assert run("frontier", training, *options, "-o", out, *QUICK).exit_code == 0
    path = out / "model.json"
    data = json.loads(path.read_text())
    arguments = ("predict", out, training, "-o", tmp_path / "o.csv")
    model = data["model"]
    for name in ("center", "scale"):
        column = {k: v for k, v in model["columns"][0].items() if k != name}
        bad = {**model, "columns": [column, *model["columns"][1:]]}
        path.write_text(json.dumps({**data, "model": bad}))
        assert f"`model.columns[0].{name}` is missing" in error(*arguments)
    bad = {**model, "model": {k: v for k, v in model["model"].items() if k != "_group_features"}}
    path.write_text(json.dumps({**data, "model": bad}))
    assert "`group_features` must be None, got 'attribute'" in error(*arguments)
    path.write_text(json.dumps({**data, "about": {"note": float("nan")}}))
    assert "it holds NaN, which is no number" in error(*arguments)
    path.write_text(json.dumps(data))
    loaded = load_table_model(out)
    loaded.model.coef_ = np.full_like(loaded.model.coef_, 1e308)
    loaded.save(path, force=True)
    assert "be a row of numbers between ±1e154" in error(*arguments)
    loaded.model.coef_ = np.full_like(loaded.model.coef_, 1e150)
    loaded.save(path, force=True)
    table = parquet.read_table(training)
    place = table.column_names.index("x")
    parquet.write_table(
        table.set_column(place, "x", pa.array(np.full(len(table), 1e200))), training
    )
    assert "no finite score" in error(*arguments)
    assert not (tmp_path / "o.csv").exists()


# demo


@pytest.mark.slow
def test_demo_tells_the_story(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo")
    assert result.exit_code == 0, result.output
    assert "evenhand-demo/report.html" in result.stdout
    found = result.stdout.split("2. What the audit found")[1].split("3. What it means")[0]
    assert all(name in found for name in ("Independence", "Separation", "Sufficiency"))
    told = ["The question", "What the audit found", "What it means for people",
            "What fairness costs", "What got worse, and who gains", "The page to open"]  # fmt: skip
    places = [result.stdout.index(f"{k}. {title}") for k, title in enumerate(told, 1)]
    assert places == sorted(places)
    assert "What gets worse:" in result.stdout
    names = {"report.html", "path.csv", "model.json", "students.csv", "scores.csv"}
    assert {p.name for p in (tmp_path / "evenhand-demo").iterdir()} == names
    assert "already holds" in error("demo")


def test_without_its_packages_the_command_says_what_to_install(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(name='typer')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import evenhand.cli.app"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'evenhand[cli]'" in result.stderr

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from evenhand._core.files import check_free, write_file, write_text
from evenhand.cli.rows import numbers, plain_text
from evenhand.data.encoding import fit_columns
from evenhand.tables import readers as tabular
from evenhand.tables.plan import in_short, is_blank, weight_factor
from evenhand.tables.readers import TableError, nearest, open_table, read_table


def put(folder, text, name="t.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "separator", "decimal"),
    [
        ("a,b\n1,2\n", ",", "."),
        ("a;b\n1,5;2\n", ";", ","),
        ("a;b\n1,5;2.5\n", ";", "."),
        ("a\tb\nx,y\t2\n", "\t", "."),
        ('a|b\n"x|y"|2\n', "|", "."),
        ('"a,b",c\n"1,2",3\n', ",", "."),
        ("a\n1\n", ",", "."),
        ("a;b;c\n1;2\n", ";", "."),
    ],
)
def test_separators_and_decimals(tmp_path, text, separator, decimal):
    found = open_table(put(tmp_path, text))
    assert (found.separator, found.decimal) == (separator, decimal)


@pytest.mark.parametrize(
    "text", ["sep=;\r\na;b\r\n1;2\r\n", '"SEP=;"\na;b\n1;2\n', "\n\r\na;b\n1;2\n"]
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_before_the_column_names(tmp_path, text, mark):
    """Excel names the separator in a line of its own; other programs leave lines empty."""
    source = open_table(put(tmp_path, mark + text))
    assert source.names == ("a", "b")
    assert read_table(source, ["b", "a"]).to_pydict() == {"b": [2], "a": [1]}


def test_spaces_around_a_name_show_in_the_message(tmp_path):
    source = open_table(put(tmp_path, "y, s\n1, 2\n"))
    with pytest.raises(TableError, match="Did you mean ' s'\\? Its columns are 'y', ' s'"):
        source.resolve("s", "--prediction")


def test_header_with_a_line_break_and_quotes(tmp_path):
    source = open_table(put(tmp_path, '"a\nb","say ""x"""\n1,2\n'))
    assert source.names == ("a\nb", 'say "x"')
    assert read_table(source, ['say "x"'])['say "x"'].to_pylist() == [2]


def test_only_the_columns_asked_for_are_read(tmp_path):
    source = open_table(put(tmp_path, "a,b,c\n1,x,3\n4,y,6\n"))
    assert read_table(source, ["c", "a", "c"]).column_names == ["c", "a"]


def test_text_is_left_alone_when_copied(tmp_path):
    source = open_table(put(tmp_path, "a,b\n007,NA\n1.50,\n"))
    table = read_table(source, ["a", "b"], as_text=True)
    assert table.to_pydict() == {"a": ["007", "1.50"], "b": ["NA", ""]}


@pytest.mark.parametrize("word", ["", "NA", "nan", "null", "None", "?", " "])
def test_words_for_missing(tmp_path, word):
    source = open_table(put(tmp_path, f"a,b\n1,x\n{word},y\n"))
    found = numbers(read_table(source, ["a"]), "a", source.path, "target")
    np.testing.assert_array_equal(found, [1, np.nan])


def test_a_character_cut_at_the_end_of_the_sample_is_no_latin_1(tmp_path, monkeypatch):
    monkeypatch.setattr(tabular, "_SAMPLE", 10)
    # The tenth byte is the first half of "é".
    source = open_table(put(tmp_path, "a,b\n1,23\né,4\n"))
    assert source.encoding == "UTF-8"
    assert source.names == ("a", "b")


def test_bytes_that_windows_leaves_open(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,\xe9\x81\n")
    source = open_table(path)
    assert read_table(source, ["b"])["b"].to_pylist() == ["é\x81"]


def test_describe_says_how_it_was_read(tmp_path):
    source = open_table(put(tmp_path, "é;b\n1,5;2\n", encoding="latin-1"))
    assert source.describe() == "text separated by semicolon, decimal comma, Windows-1252"
    assert (
        open_table(put(tmp_path, "a~b\n1~2\n"), "~").describe().startswith("text separated by '~'")
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("Incme", "income"), ("INCOME ", "income"), ("zzz", None)]
)
def test_nearest(name, expected):
    assert nearest(name, ["income", "age", "x" * 10_000]) == expected


def test_long_names_are_cut_in_messages(tmp_path):
    source = open_table(put(tmp_path, "x" * 10_000 + ",b\n1,2\n"))
    with pytest.raises(TableError) as caught:
        source.resolve("y" * 10_000, "--target")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([[1], [2]]), "not values of type list"),
        (pa.array(["1", "2"]), "numbers stored as text"),
        (pa.nulls(2), "has no values at all"),
    ],
)
def test_numbers_refuses(tmp_path, column, words):
    with pytest.raises(TableError, match=words):
        numbers(pa.table({"y": column}), "y", tmp_path, "target")


def test_numbers_of_many_types(tmp_path):
    from decimal import Decimal

    for column in (
        pa.array([1, 0], pa.int8()), pa.array([True, False]), pa.array([1.0, 0.0], pa.float32()),
        pa.array([Decimal("1.0"), Decimal(0)]),
    ):  # fmt: skip
        found = numbers(pa.table({"y": column}), "y", tmp_path, "target")
        np.testing.assert_array_equal(found, [1.0, 0.0])


def test_lists_are_no_labels():
    table = pa.table({"g": pa.array([[1], [2]])})
    with pytest.raises(TableError, match="--sensitive 'g' must hold labels, not values of type li"):
        plain_text(table)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_of_every_type_is_text(tmp_path, kind):
    table = pa.table({"t": pa.array(["a", "b"], kind)})
    assert fit_columns(table, ["t"])[0].kind == "category"
    assert plain_text(table)["t"].type == pa.string()
    with pytest.raises(TableError, match="must hold numbers: 2 of 2 values do not"):
        numbers(table, "t", tmp_path, "target")


def test_plain_text_keeps_numbers_and_unwraps_dictionaries():
    import datetime

    table = pa.table({
        "n": [1, 2], "t": pa.array(["b", "a"]).dictionary_encode(),
        "d": [datetime.date(2020, 1, 1)] * 2,
    })  # fmt: skip
    found = plain_text(table)
    assert found["n"].type == pa.int64()
    assert found["t"].to_pylist() == ["b", "a"]
    assert found["d"].to_pylist() == ["2020-01-01"] * 2


def test_files_are_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "t.txt"

    def broken(path):
        path.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_file(target, broken)
    assert not list(tmp_path.iterdir())
    write_text(target, "é\n")
    assert target.read_bytes() == "é\n".encode()
    assert target.stat().st_mode & 0o444 == 0o444 or target.stat().st_mode & 0o400
    with pytest.raises(FileExistsError):
        check_free(target, force=False)
    with pytest.raises(IsADirectoryError):
        check_free(tmp_path, force=True)
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        check_free(tmp_path / "no" / "x", force=False)


@pytest.mark.parametrize(
    ("name", "lines", "separator"),
    [
        ("a.csv", ["u;v;w", "1,5;2;3"], ";"),
        ("a.csv", ["u,v", "1,2"], ","),
        ("a.tsv", ["u\tv,w", "1\t2,3"], "\t"),
        ("a.csv", ["u;v;w", "1;2"], ";"),
        ("a.csv", ["u;v;w,x", "1,2;2;3,x"], ";"),
        ("a.csv", ["u;v;v;w,x", "1,2"], ","),
        ("a.csv", ["number", "1"], ","),
    ],
)
def test_a_separator_splits_each_line_into_as_many_fields(name, lines, separator):
    assert tabular._sniff(lines, Path(name)) == separator


def test_the_beginning_of_a_packed_file_is_no_more_than_was_asked_for(tmp_path):
    path, content = tmp_path / "t.csv.gz", b"u,v\n1,2\n3,4\n"
    path.write_bytes(gzip.compress(content))
    head = path.read_bytes()[:8]
    assert tabular._unpack(path, head, 5) == content[:5]
    assert tabular._unpack(path, head, None) == content
    assert tabular._unpack(path, b"u,v", None) is None


def test_what_an_engine_says_comes_without_the_rows_it_quotes():
    error = ValueError("Conversion failed\n\nLINE 1: SELECT x\n   ^\nOriginal Line: secret\nin u")
    assert in_short(error) == "Conversion failed in u"
    assert in_short(ValueError("")) == "ValueError"
    assert len(in_short(ValueError("a" * 500))) == 300


def test_a_text_that_stands_for_none():
    assert is_blank("") is True
    assert is_blank("n/a", ["n/a"]) is True
    assert is_blank("a", ["n/a"]) is False
    assert is_blank(0, ["n/a"]) is False


@pytest.mark.parametrize(("largest", "factor"), [(3.0, 1.0), (1e150, 1e-150), (1e-150, 1e150)])
def test_weights_are_scaled_where_their_squares_would_leave_the_floats(largest, factor):
    assert weight_factor({"largest_sample_weight": largest}) == pytest.approx(factor)
    assert weight_factor({}) == 1.0

"""Folders of files that differ: right, or refused with a name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import evenhand as eh
from evenhand.tables.audit_table import cells_of

ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}
N = 200


def rows(seed: int = 1, **changed) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    found = {"s": rng.normal(size=N), "y": rng.normal(size=N), "a": rng.choice(["p", "q"], N)}
    return pd.DataFrame(found).assign(**changed)


def write(path, frame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)


def same(found, frame) -> None:
    """Cells are those of a frame in memory, whatever the order of rows."""
    own = cells_of(frame, **ROLES, edges=found.edges)
    assert found.labels == own.labels
    assert found.n_unknown == own.n_unknown
    for column in ("score_bin", "target_bin", "group", "count", "least", "largest"):
        np.testing.assert_array_equal(getattr(found, column), getattr(own, column))
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12, atol=1e-12)


def test_files_that_differ_in_what_does_not_matter(tmp_path):
    """Whole numbers, fractions of 32 and 64 bits; categories and text; order; other columns."""
    parts = {
        "whole": rows(1, s=np.arange(N) % 7).astype({"a": "category"}),
        "half": rows(2).astype({"s": "float32", "y": "float32"})[["a", "y", "s"]],
        "more": rows(3, other="text"),
        "other": rows(4, other=1.5),
        "none": rows(5)[:0],
        "one group": rows(6, a="p"),
        "no group": rows(7, a=None),
    }
    for name, part in parts.items():
        write(tmp_path / f"{name}.parquet", part)
    found = cells_of(tmp_path, **ROLES)
    assert found.n_unknown == N
    same(found, pd.concat([part.astype({"a": object}) for part in parts.values()]))


def test_groups_that_are_whole_in_one_file_and_not_in_another(tmp_path):
    parts = [rows(1, a=np.arange(N) % 2), rows(2, a=np.arange(N) % 4 / 2)]
    for k, part in enumerate(parts):
        write(tmp_path / f"{k}.parquet", part)
    found = cells_of(tmp_path, **ROLES)
    assert found.labels == (0, 0.5, 1, 1.5)
    same(found, pd.concat(parts))


def test_groups_in_the_names_of_folders(tmp_path):
    """Values are text, with their zeros, spaces and gaps."""
    values = {"02139": "02139", "a%20b+c": "a b+c", "__HIVE_DEFAULT_PARTITION__": None}
    parts = []
    for k, (name, label) in enumerate(values.items()):
        write(tmp_path / "year=2024" / f"a={name}" / "x.parquet", rows(k).drop(columns="a"))
        parts.append(rows(k, a=label))
    for table in (tmp_path, str(tmp_path / "*" / "a=*" / "*.parquet")):
        found = cells_of(table, **ROLES)
        assert found.labels == ("02139", "a b+c")
        same(found, pd.concat(parts))


def test_what_writers_leave_beside_their_files_is_not_read(tmp_path):
    write(tmp_path / "part" / "one.parquet", rows())
    write(tmp_path / "part" / "two.PARQUET", rows(2))
    write(tmp_path / "part" / "_temporary" / "x.parquet", rows())
    for name in ("_SUCCESS", "_metadata", ".x.parquet.crc", ".hidden.parquet"):
        (tmp_path / "part" / name).write_bytes(b"x")
    for table in (tmp_path, str(tmp_path / "**" / "*.[pP]*")):
        same(cells_of(table, **ROLES), pd.concat([rows(), rows(2)]))


def test_csv_files_of_several_makes(tmp_path):
    """Order of columns, separators, decimal commas, quotes, a file without rows."""
    label = np.where(np.arange(N) % 2, 'x; "y", z', "02139")
    parts = [rows(k, a=label) for k in range(3)]
    parts[0].to_csv(tmp_path / "a.csv", index=False)
    parts[1][["a", "y", "s"]].to_csv(tmp_path / "b.csv", index=False, sep="\t")
    parts[2].to_csv(tmp_path / "c.csv", index=False, sep=";", decimal=",")
    parts[2][:0].to_csv(tmp_path / "d.csv", index=False)
    found = cells_of(str(tmp_path / "*.csv"), **ROLES)
    same(found, pd.concat(parts))


def test_packed_csv_files(tmp_path, monkeypatch):
    """Looked at without unpacking more than the beginning."""
    from evenhand.tables import readers as tabular

    kinds = {"gz": "gzip", "zst": "zstd"}
    parts = [rows(k) for k, _ in enumerate(kinds)]
    for part, (end, kind) in zip(parts, kinds.items(), strict=True):
        with pa.CompressedOutputStream(str(tmp_path / f"x.csv.{end}"), kind) as stream:
            stream.write(part.to_csv(index=False).encode())
    monkeypatch.setattr(tabular, "_SAMPLE", 1000)
    same(cells_of(str(tmp_path / "*"), **ROLES), pd.concat(parts))
    packed = (tmp_path / "x.csv.gz").read_bytes()
    (tmp_path / "y.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ValueError, match=r"cannot be (read by|unpacked)"):
        cells_of(str(tmp_path / "y.csv.gz"), **ROLES)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda f: f.drop(columns="a"), r"two\.parquet' has no column 'a'. Its columns"),
        (lambda f: f.rename(columns={"s": "S"}), r"two\.parquet' has no column 's'"),
        (lambda f: f.astype({"s": str}),
         r"Column 's' must be of one type in all files: it holds numbers in '.*one\.parquet' and "
         r"text in '.*two\.parquet'"),
        (lambda f: f.assign(a=1), r"Column 'a' must be of one type .* numbers in '.*two\.parquet'"),
        (lambda f: f.assign(y=f["y"] > 0), r"Column 'y' must .* bool in '.*two\.parquet'"),
        (lambda f: f.assign(s=None), r"`y_pred` must be finite: 200 of 400 rows of column 's'"),
    ],
)  # fmt: skip
def test_files_that_differ_in_what_matters(tmp_path, changed, message):
    write(tmp_path / "one.parquet", rows())
    write(tmp_path / "two.parquet", changed(rows(2)))
    with pytest.raises(ValueError, match=message):
        cells_of(tmp_path, **ROLES)


def test_numbers_that_are_text_in_every_file(tmp_path):
    write(tmp_path / "one.parquet", rows().astype({"s": str}))
    with pytest.raises(ValueError, match="must be numbers: column 's' of the table holds t"):
        cells_of(tmp_path, **ROLES)


def test_files_that_are_none(tmp_path):
    write(tmp_path / "one.parquet", rows())
    (tmp_path / "two.parquet").touch()
    with pytest.raises(ValueError, match=r"two\.parquet' is not a whole Parquet file: .* 0 bytes"):
        cells_of(tmp_path, **ROLES)
    (tmp_path / "two.parquet").unlink()
    table = parquet.read_table(tmp_path / "one.parquet")
    parquet.write_table(table.append_column("s", table.column("y")), tmp_path / "two.parquet")
    with pytest.raises(ValueError, match=r"two\.parquet' has 2 columns named 's'"):
        cells_of(tmp_path, **ROLES)
    (tmp_path / "two.parquet").unlink()
    write(tmp_path / "a=p" / "two.parquet", rows().drop(columns="a"))
    with pytest.raises(ValueError, match=r"two\.parquet' has no column 'a'|in all files or in the"):
        cells_of(tmp_path, **ROLES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"b\.csv' is empty"),
        ("s,y\n1,2\n", r"b\.csv' has no column 'a'"),
        ("s,y,a,s\n1,2,p,3\n", r"b\.csv' has 2 columns named 's'"),
        ("s,y,a\n" + 99 * "1,2,p\n" + "1,2,p,4\n", "`table` cannot be read by "),
        ("s,y,a\n" + 99 * "1,2,p\n" + "1,much,p\n", "`table` cannot be read by .*much"),
        ("s,y,a\n" + 99 * "1,2,p\n" + "1,inf,p\n", "`y_true` must be finite: 1 of 300 rows"),
    ],
)  # fmt: skip
def test_csv_files_with_mistakes(tmp_path, text, message):
    rows().to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        cells_of(str(tmp_path / "*.csv"), **ROLES)


def test_text_in_another_encoding(tmp_path):
    rows(a=np.where(np.arange(N) % 2, "süd", "nord")).to_csv(
        tmp_path / "a.csv", index=False, encoding="cp1252"
    )
    with pytest.raises(ValueError, match=r"a\.csv' must be UTF-8 .* looks like Windows-1252"):
        cells_of(tmp_path / "a.csv", **ROLES)
    write(tmp_path / "b.csv", rows())
    with pytest.raises(ValueError, match=r"b\.csv' is named like CSV and is parquet"):
        cells_of(tmp_path / "b.csv", **ROLES)


def test_a_file_that_is_named_twice(tmp_path):
    first = tmp_path / "a" / "a.parquet"
    for path in (first, tmp_path / "a" / "b.parquet"):
        write(path, rows())
    (tmp_path / "link.parquet").symlink_to(first)
    with pytest.raises(ValueError, match=r"a\.parquet' is named twice, and its people would count"):
        eh.audit_table([first, first], **ROLES)
    for paths in ([tmp_path / "a", first], [first, str(tmp_path / "a" / "*.parquet")]):
        with pytest.raises(ValueError, match="is named twice"):
            cells_of(paths, **ROLES)
    with pytest.raises(ValueError, match=r"link\.parquet' is named twice: it is .*a\.parquet' as"):
        cells_of([first, tmp_path / "link.parquet"], **ROLES)

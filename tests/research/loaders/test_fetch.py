import bz2
import gzip
import hashlib
import http.client
import io
import os
import sys
import zipfile
from pathlib import Path
from urllib.error import URLError

import pytest

from evenhand.datasets import DataFileError
from loaders import _fetch, load_communities, load_law_school

CONTENT = b"1,2\n3,4\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache" / "evenhand"
    monkeypatch.setattr(_fetch, "cache_dir", lambda: folder)
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    return folder


@pytest.fixture
def data(tmp_path, monkeypatch, cache):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("EVENHAND_DATA", str(folder))
    return folder


def file_at(path, name="tiny.csv", content=CONTENT):
    """A data file whose public address is a local one."""
    if path is not None and content is not None:
        path.write_bytes(content)
    url = None if path is None else path.as_uri()
    return _fetch.DataFile(name, SHA256, len(CONTENT), url, "the tiny archive.")


def entries(folder):
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_folder_of_the_user_comes_first(data, cache, tmp_path):
    (data / "tiny.csv").write_bytes(CONTENT)
    file = _fetch.DataFile("tiny.csv", SHA256, 8, "file:///nowhere", "x")
    assert _fetch.read(file) == CONTENT
    assert entries(cache) == []


def test_cache_comes_before_the_download(cache):
    cache.mkdir(parents=True)
    (cache / "tiny.csv").write_bytes(CONTENT)
    file = _fetch.DataFile("tiny.csv", SHA256, 8, "file:///nowhere", "x")
    assert _fetch.read(file) == CONTENT


def test_download_is_cached_and_leaves_nothing_else(cache, tmp_path):
    file = file_at(tmp_path / "remote")
    assert _fetch.read(file) == CONTENT
    assert entries(cache) == ["tiny.csv"]
    (tmp_path / "remote").unlink()
    assert _fetch.read(file) == CONTENT


def test_empty_user_folder_falls_through_to_the_download(data, cache, tmp_path):
    assert _fetch.read(file_at(tmp_path / "remote")) == CONTENT
    assert entries(data) == []


def test_line_ends_do_not_matter(data):
    (data / "tiny.csv").write_bytes(CONTENT.replace(b"\n", b"\r\n"))
    assert _fetch.read(file_at(None)) == CONTENT


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny.csv", content)
    return buffer.getvalue()


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".zip": zipped}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("ending", PACK)
def test_packed_and_unpacked_names_are_accepted(data, ending, packed):
    name = f"tiny.csv{ending}" if packed else "tiny.csv"
    (data / name).write_bytes(PACK[ending](CONTENT) if packed else CONTENT)
    assert _fetch.read(file_at(None, f"tiny.csv{ending}")) == CONTENT


def test_corrupt_download_is_refused_and_not_cached(cache, tmp_path):
    file = file_at(tmp_path / "remote", content=CONTENT[:5])
    with pytest.raises(DataFileError, match=r"must have SHA-256 .*\(8 bytes\), got .*\(5 bytes\)"):
        _fetch.read(file)
    assert entries(cache) == []


def test_corrupt_file_of_the_user_is_refused_even_if_a_download_would_work(data, cache, tmp_path):
    (data / "tiny.csv").write_bytes(b"1,2\n3,5\n")
    with pytest.raises(DataFileError, match="incomplete or an altered copy") as caught:
        _fetch.read(file_at(tmp_path / "remote"))
    assert str(data / "tiny.csv") in str(caught.value)
    assert entries(cache) == []


@pytest.mark.parametrize("ending", PACK)
def test_damaged_archive_is_refused(data, ending):
    (data / f"tiny.csv{ending}").write_bytes(PACK[ending](CONTENT)[:-6])
    with pytest.raises(DataFileError, match="is damaged and cannot be unpacked"):
        _fetch.read(file_at(None, f"tiny.csv{ending}"))


@pytest.fixture
def package(tmp_path, monkeypatch, cache):
    """A distribution `tinydata` that ships tiny.csv, and the data file that names it."""
    site = tmp_path / "site"
    info = site / "tinydata-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tinydata\nVersion: 2.0\n")
    (site / "tinydata").mkdir()
    (site / "tinydata" / "tiny.csv").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(site))
    file = _fetch.DataFile(
        "tiny.csv", SHA256, 8, None, "x", ("tinydata", "tinydata/tiny.csv"), "pip install tinydata"
    )
    return site / "tinydata" / "tiny.csv", file


def test_file_of_a_package_is_read_without_importing_it(package):
    assert _fetch.read(package[1]) == CONTENT
    assert "tinydata" not in sys.modules


def test_file_of_the_user_comes_before_that_of_a_package(package, data):
    package[0].write_bytes(b"junk")
    (data / "tiny.csv").write_bytes(CONTENT)
    assert _fetch.read(package[1]) == CONTENT


def test_altered_file_of_a_package_names_its_version(package):
    package[0].write_bytes(b"junk")
    with pytest.raises(DataFileError, match=r"from tinydata 2\.0 .* must have SHA-256"):
        _fetch.read(package[1])


def test_package_without_the_file_says_so(package):
    package[0].unlink()
    with pytest.raises(DataFileError, match=r"was not found in tinydata 2\.0, at .*Hint: put"):
        _fetch.read(package[1])


def test_package_that_is_not_installed_says_how_to_get_it(cache):
    file = _fetch.DataFile(
        "tiny.csv", SHA256, 8, None, "x", ("no-such-data", "a/tiny.csv"), "pip install it"
    )
    with pytest.raises(
        ModuleNotFoundError,
        match="must come from the package `no-such-data`, which is not installed",
    ):
        _fetch.read(file)


def test_damaged_cache_heals_by_a_download(cache, tmp_path):
    cache.mkdir(parents=True)
    (cache / "tiny.csv").write_bytes(b"junk")
    assert _fetch.read(file_at(tmp_path / "remote")) == CONTENT
    assert (cache / "tiny.csv").read_bytes() == CONTENT


def test_damaged_cache_without_an_address_is_refused(cache):
    cache.mkdir(parents=True)
    (cache / "tiny.csv").write_bytes(b"junk")
    with pytest.raises(DataFileError, match="must have SHA-256"):
        _fetch.read(file_at(None))


def test_interrupted_download_is_refused_and_not_cached(cache, monkeypatch):
    class Broken:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def read(self):
            raise http.client.IncompleteRead(b"1,2\n", 4)

    monkeypatch.setattr(_fetch, "urlopen", lambda url, timeout: Broken())
    file = _fetch.DataFile("tiny.csv", SHA256, 8, "https://example.org/tiny.csv", "x")
    with pytest.raises(DataFileError, match=r"from https://example\.org/.*Incomplete"):
        _fetch.read(file)
    assert entries(cache) == []


def test_interrupted_write_leaves_no_half_file(cache, tmp_path, monkeypatch):
    def stop(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        _fetch.read(file_at(tmp_path / "remote"))
    assert entries(cache) == []


def test_cache_that_cannot_be_written_costs_nothing(cache, tmp_path):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    assert _fetch.read(file_at(tmp_path / "remote")) == CONTENT


def test_offline_error_says_which_file_to_put_where(cache, monkeypatch):
    def offline(url, timeout):
        raise URLError("no route to host")

    monkeypatch.setattr(_fetch, "urlopen", offline)
    with pytest.raises(DataFileError) as caught:
        load_communities()
    message = str(caught.value)
    for part in (
        "`communities.data` was not found",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/communities/communities.data",
        "no route to host",
        "Hint: put communities.data (content of 1100821 bytes, SHA-256 d90d85bd",
        "in a folder named by EVENHAND_DATA",
        str(cache / "communities.data"),
    ):
        assert part in message


def test_file_without_an_address_says_so(data, cache):
    with pytest.raises(DataFileError) as caught:
        load_law_school()
    message = str(caught.value)
    for part in (
        "`lsac.csv.gz` was not found, and no public address of it is known",
        "Hint: put lsac.csv.gz or lsac.csv (content of 3944453 bytes, SHA-256 aa02772e",
        f"in {data} (EVENHAND_DATA)",
        str(cache / "lsac.csv.gz"),
    ):
        assert part in message


@pytest.mark.parametrize(
    ("platform", "variable", "default"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
        ("darwin", None, "Library/Caches"),
    ],
)
def test_cache_folder_follows_the_platform(platform, variable, default, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    if variable:
        monkeypatch.delenv(variable, raising=False)
    assert _fetch.cache_dir() == tmp_path / default / "evenhand"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
        assert _fetch.cache_dir() == tmp_path / "elsewhere" / "evenhand"

"""Files that are never written over anything but a regular file."""

import os
import socket

import pytest

from evenhand._core.files import check_free, write_text


@pytest.fixture
def special(tmp_path):
    """Paths that are no regular files, by what they are."""
    (tmp_path / "target").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder link").symlink_to(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as found:
        here = os.getcwd()
        os.chdir(tmp_path)  # the name of a socket must be short
        found.bind("socket")
        os.chdir(here)
        yield tmp_path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("link", "is a symbolic link, which is never overwritten"),
        ("dangling", "is a symbolic link"),
        ("folder link", "is a symbolic link"),
        ("pipe", "is a named pipe"),
        ("socket", "is a socket"),
        ("/dev/null", "is a device"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_only_regular_files_are_overwritten(special, name, words, force):
    before = {p: p.lstat() for p in special.iterdir()}
    for check in (check_free, lambda path, force: write_text(path, "new", force)):
        with pytest.raises(OSError, match=words):
            check(special / name, force)
    assert {p: p.lstat() for p in special.iterdir()} == before
    assert (special / "target").read_text() == "mine"
    assert os.path.exists("/dev/null")


def test_what_appears_while_a_file_is_written_stays(tmp_path):
    from evenhand._core.files import write_file

    def write(temporary):
        temporary.write_text("late")
        (tmp_path / "t").symlink_to(tmp_path / "other")

    with pytest.raises(OSError, match="is a symbolic link"):
        write_file(tmp_path / "t", write, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_force_overwrites_a_regular_file(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("old")
    assert write_text(path, "new", force=True).read_text() == "new"

"""Words that the pages, docstrings and messages do not use, each with what to say instead."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BANNED = {
    r"laws?": "distribution",
    r"(lies?|lying) beyond": "is outside, differs from",
    r"further (above|below)": "is higher, is lower by",
    r"has (risen|fallen)": "got worse, got better: 0.010 → 0.027",
    r"left open|undecided|cannot be told": "not enough data",
    r"as far as (these|the) data can tell": "the audit found no difference",
    r"of processors|processor (time|seconds)|on the clock": "CPU time, wall-clock time",
    r"(numbers?|bytes?|lines?|curves?|time|seconds?|rows?|bins|entry|columns?|curvature|voice) an? "
    r"(row|group|side|month|year|day|feature)": "per row, per group",
    r"guessed": "estimated, inferred",
    r"whatever is so|for whatever it is": "the range without any assumption",
    r"but for|save (for|where)": "except for, except where",
    r"those of the reference": "those of the reference group",
    r"(is|are|was) (scored|rated) (above|below|over|under) (its|their)": "scores are too high",
    r"\d+(\.\d+)? an? (row|group|entry)|one (row|line) an? \w+": "per row, per group",
    r"(limit|clause|tolerance)s? (is|are) violated": "the limit is not met",
    r"that is never so|what one says the other": "say which",
}  # fmt: skip
# The word of the courts is meant here.
LEGAL = (
    r"\['law'\]|local law|state laws|which the law of|(of|by|thresholds of) any law|no law sets|"
    r"as that law|for the law|"
    r"laws? (schools?|students?|that applies|or your|lets|of many places|to say)"
)
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")])
CODE = sorted([*ROOT.glob("src/evenhand/**/*.py"), *ROOT.glob("examples/*.py")])


def texts(path):
    """Lines of a page, or the strings of a module: docstrings, messages, labels."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md" or path.parent.name == "examples":
        yield from enumerate(source.splitlines(), 1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from enumerate(node.value.splitlines(), node.lineno)


def offenses(path):
    for number, line in texts(path):
        plain = re.sub(LEGAL, "", line, flags=re.IGNORECASE)
        for pattern, instead in BANNED.items():
            if match := re.search(rf"\b({pattern})\b", plain, re.IGNORECASE):
                yield f"{path.relative_to(ROOT)}:{number}: {match.group()!r}; say {instead}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_pages_speak_plainly(path):
    assert list(offenses(path)) == []


def test_code_speaks_plainly():
    assert [line for path in CODE for line in offenses(path)] == []


def test_a_banned_word_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("A normal law, 8 bytes a row.\nThe law that applies; law students.\n")
    assert [line.split("; ")[0] for line in offenses(page)] == [
        "page.md:1: 'law'", "page.md:1: 'bytes a row'",
    ]  # fmt: skip

"""Labels that are out to break a page, and a reader that sees whether they did."""

import csv
import html.parser
import io
import re
from urllib.parse import unquote

import numpy as np

HOSTILE = (
    "<script>alert(1)</script>",
    "=cmd()",
    "",
    "😀 emoji",
    "x" * 10_000,
    "</script><img src=x onerror=alert(2)>",
    "a $b$ & \"c\" 'd'",
    "\x1b[31mred\u202e\u2028line",
)


def make_rows(n=1600, groups=HOSTILE, seed=0):
    rng = np.random.default_rng(seed)
    a = np.arange(n) % len(groups)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 0.4 * a
    y = X @ [1.0, 0.5, -0.5] + 0.2 * a + rng.normal(size=n)
    return X, y, np.array(groups, dtype=object)[a]


class Reader(html.parser.HTMLParser):
    """Tags and text of a piece of HTML, as a browser would split them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def downloads(text):
    """The CSV files a page offers, by name, as rows."""
    found = {}
    for tag, attributes in Reader(text).tags:
        if tag == "a" and attributes["href"].startswith("data:text/csv"):
            body = unquote(attributes["href"].split(",", 1)[1]).removeprefix("\ufeff")
            rows = list(csv.reader(io.StringIO(body, newline="")))
            found[attributes["download"]] = rows
    return found


def check_page(text, scripts):
    """No markup but our own, and nothing that could reach out."""
    found = Reader(text)
    tags = [tag for tag, _ in found.tags]
    assert tags.count("script") == scripts
    assert not {"img", "iframe", "link", "object", "form", "base"} & set(tags)
    for tag, attributes in found.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "data:").startswith("data:"), attributes
    assert not re.search(r"url\(|@import|https?:", text.split("</style>")[0].split("<style>")[1])
    return "".join(found.text)

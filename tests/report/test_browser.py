"""The reports in a real browser. Skipped where Chromium is not installed."""

from pathlib import Path

import numpy as np
import pytest
from grids import pairwise
from playwright import sync_api

import evenhand as eh

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser(chromium):
    with sync_api.sync_playwright() as p:
        found = p.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def visit(browser):
    """Open a file; afterwards, no console message, error, dialog or request but the file's own."""
    contexts, trouble = [], []

    def open_page(path, width=1100, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(600_000)  # of a busy machine
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: trouble.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: trouble.append(f"error: {e}"))
        page.on("dialog", lambda d: (trouble.append(f"dialog: {d.message}"), d.dismiss()))
        page.on(
            "request",
            lambda r: None if r.url == path.as_uri() else trouble.append(f"request: {r.url}"),
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not trouble


@pytest.fixture(scope="module")
def pages(path, hostile_path, hostile_audit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    limits = eh.Tolerance(independence=0.02, smd=(-0.1, 0.1), favorable="low")
    about = {"owner": "the pricing team", "purpose": "premiums at renewal"}
    return {
        "path": path.to_html(folder / "path.html"),
        "signed path": path.to_html(folder / "signed path.html", tolerance=limits, about=about),
        "signed set": eh.AuditSet({"old": priced_audit(), "new": priced_audit()}).to_html(
            folder / "signed set.html", about=about, favorable="low"
        ),
        "signed audit": priced_audit().to_html(
            folder / "signed audit.html", tolerance=limits, about=about
        ),
        "hostile path": hostile_path.to_html(folder / "hostile path.html"),
        "hostile audit": hostile_audit.to_html(folder / "hostile audit.html"),
    }


def priced_audit():
    """With everything that a page can hold: controls, prices, a verdict and impact."""
    rng = np.random.default_rng(0)
    n = 500
    a = rng.choice(["north", "south", "west"], n)
    age = rng.normal(45, 12, n)
    exposure = rng.uniform(0.2, 1.0, n)
    rate = np.exp(-0.5 + 0.02 * (age - 45) + 0.2 * (a == "west") + 0.1 * rng.normal(size=n))
    return eh.audit(
        rng.poisson(rate * exposure), rate, sensitive_features={"region": a}, exposure=exposure,
        loss="poisson", controls={"age": age}, estimator="logistic",
    )  # fmt: skip


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Monitoring with a gap, an alarm, a limit and hostile names; drivers; imputed groups."""
    folder = tmp_path_factory.mktemp("watched")
    rng = np.random.default_rng(0)
    evil = "</script><img src=x onerror=alert(2)>"
    series, edges = {}, None
    for t in range(40):
        a = np.array(["p", evil])[rng.integers(0, 1 if t == 7 else 2, 400)]
        s = rng.normal(size=400) + (1.2 if t > 30 else 0.2) * (a == evil)
        series[f"2021-W{t:02d}"] = eh.Cells.from_rows(None, s, sensitive_features=a, edges=edges)
        edges = series[f"2021-W{t:02d}"].edges
    series[evil] = series["2021-W39"]
    X = rng.normal(size=(400, 3)) + rng.integers(0, 2, 400)[:, None]
    frame = {"one": X[:, 0], evil: X[:, 1], "a name that is far too long for a chart": X[:, 2]}
    pd = pytest.importorskip("pandas")
    a = np.where(X[:, 0] > 1, evil, "q")
    p = np.column_stack([X[:, 1] > 0.5, X[:, 1] <= 0.5]) * 0.8 + 0.1
    audit = eh.audit(None, X[:, 0], sensitive_features=eh.Proxy(p, ["p", evil]),
                     estimator="logistic")  # fmt: skip
    return {
        "monitor": eh.monitor(series, limits={"independence": 0.3}).to_html(folder / "m.html"),
        "drivers": eh.drivers(
            X.sum(axis=1), pd.DataFrame(frame), sensitive_features=a, estimator="logistic"
        ).to_html(folder / "d.html"),
        "imputed": audit.to_html(folder / "i.html"),
    }


@pytest.mark.parametrize("name", ["monitor", "drivers", "imputed"])
@pytest.mark.parametrize("width", [375, 1100])
def test_pages_of_what_comes_after_an_audit(visit, watched, name, width):
    page = visit(watched[name], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("img").count() == 0
    # No words of a chart on top of each other, or beyond its edge.
    boxes = page.evaluate(
        "[...document.querySelectorAll('.wide, .bars')].map(c => [c.getBoundingClientRect(),"
        " [...c.querySelectorAll('text')].filter(t => getComputedStyle(t).display != 'none')"
        ".map(t => t.getBoundingClientRect())])"
    )
    assert boxes
    for chart, words in boxes:
        for k, one in enumerate(words):
            assert chart["left"] - 1 <= one["left"]
            assert one["right"] <= chart["right"] + 1
            for other in words[k + 1 :]:
                apart = (
                    one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
                    or one["bottom"] <= other["top"] + 2 or other["bottom"] <= one["top"] + 2
                )  # fmt: skip
                assert apart, (one, other)


@pytest.mark.parametrize("width", [375, 1280])
def test_outcomes_in_thousands_are_drawn_and_labeled_whole(visit, tmp_path, width):
    rng = np.random.default_rng(0)
    s, a = rng.gamma(4.0, 20_000.0, 400), rng.choice(["north", "south"], 400)
    audit = eh.audit(s * rng.gamma(4.0, 0.25, 400), s, sensitive_features=a, estimator="logistic")
    page = visit(audit.to_html(tmp_path / "claims.html"), width=width)
    for chart in page.locator(".figures svg").all():
        frame = chart.bounding_box()
        words = [w.bounding_box() for w in chart.locator("text:visible").all()]
        assert words
        assert min(box["x"] for box in words) >= frame["x"] - 1
        names = [w.bounding_box() for w in chart.locator("text.side:visible").all()]
        ticks = [w.bounding_box() for w in chart.locator("text.tick.end:visible").all()]
        for name in names:
            assert all(name["x"] + name["width"] <= tick["x"] + 1 for tick in ticks)


def test_wide_tables_say_on_a_phone_that_they_go_on(visit, pages):
    page = visit(pages["signed audit"], width=375)
    said = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth > box.clientWidth,"
        " getComputedStyle(box.querySelector('caption'), '::after').content])"
    )
    assert any(wide for wide, _ in said)
    assert all("Scroll sideways" in words for wide, words in said if wide)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["monitor", "drivers", "imputed"])
def test_axe_finds_nothing_there_either(visit, watched, name, scheme):
    axe = pytest.importorskip("axe_playwright_python", reason="axe-core comes with it")
    source = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    page = visit(watched[name], color_scheme=scheme, bypass_csp=True)
    page.evaluate(source)
    found = page.evaluate("axe.run()")
    assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []


def open_panel(page):
    shown = page.locator("[data-panel]:visible")
    assert shown.count() == 1
    return int(shown.get_attribute("data-panel"))


def test_points_click(visit, pages, path):
    page = visit(pages["path"])
    for k in (0, len(path) - 1):
        # Without a place, as aids for the blind send it.
        page.locator(f".point[data-point='{k}']").first.dispatch_event("click")
        assert open_panel(page) == k
        checked = page.locator(".point[aria-checked='true']")
        assert {c.get_attribute("data-point") for c in checked.all()} == {str(k)}
        assert page.locator("#spoken").inner_text().startswith(f"Model {k + 1} of {len(path)}")


def test_every_point_can_be_hit_with_the_mouse(visit, pages, path):
    page = visit(pages["path"])
    for k in range(len(path)):
        hit = page.locator(f".point[data-point='{k}'] .hit").first
        hit.scroll_into_view_if_needed()
        mark = hit.bounding_box()
        page.mouse.click(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
        assert open_panel(page) == k


def test_the_keyboard_reaches_every_point(visit, pages, path):
    page = visit(pages["path"])
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('point')"):
            break
    else:
        pytest.fail("Tab never reached a point")
    page.keyboard.press("Home")
    seen = [open_panel(page)]
    for _ in range(len(path) - 1):
        page.keyboard.press("ArrowRight")
        seen.append(open_panel(page))
    assert seen == list(range(len(path)))
    page.keyboard.press("ArrowRight")
    assert open_panel(page) == len(path) - 1
    page.keyboard.press("ArrowLeft")
    assert open_panel(page) == len(path) - 2
    focused = page.evaluate("document.activeElement.dataset.point")
    assert focused == str(len(path) - 2)


def test_buttons_step_and_stop_at_the_ends(visit, pages, path):
    page = visit(pages["path"])
    back, forward = page.locator("#step-back"), page.locator("#step-forward")
    while back.is_enabled():
        back.click()
    assert open_panel(page) == 0
    forward.click()
    assert open_panel(page) == 1


@pytest.mark.parametrize("name", ["hostile path", "hostile audit"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_labels_are_text(visit, pages, name, scheme):
    page = visit(pages[name], color_scheme=scheme)
    text = page.locator("body").inner_text()
    assert "<script>alert(1)</script>" in text
    assert "</script><img src=x onerror=alert(2)>" in text
    assert page.locator("img").count() == 0
    # Nothing sticks out of the page to the side, whatever the length of a label.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (scheme == "light")


SIGNED = ("signed audit", "signed path", "hostile audit", "hostile path")


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("width", [375, 768])
def test_nothing_scrolls_sideways_on_a_small_screen(visit, pages, name, width):
    page = visit(pages[name], width=width, is_mobile=width == 375, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("innerWidth") == width  # a phone would zoom out to fit what sticks out


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_points_are_large_enough_to_touch(visit, pages, width):
    page = visit(pages["signed path"], width=width)
    sizes = page.evaluate(
        "[...document.querySelectorAll('.hit')].map(e => e.getBoundingClientRect().width)"
    )
    assert min(sizes) >= 24


@pairwise(
    name=["signed audit", "signed path", "signed set"], scheme=["light", "dark"], width=[1280, 375]
)
def test_axe_finds_nothing(visit, pages, name, scheme, width):
    axe = pytest.importorskip("axe_playwright_python", reason="axe-core comes with it")
    source = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    # The page's own policy lets no script in but its own.
    page = visit(pages[name], width=width, color_scheme=scheme, bypass_csp=True)
    page.evaluate(source)
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 20
    assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []


def test_a_printed_heading_stays_with_what_follows(visit, pages):
    page = visit(pages["signed path"])
    page.emulate_media(media="print")
    kept = page.evaluate(
        "[...document.querySelectorAll('h2, h3, figcaption, caption')].every("
        "e => getComputedStyle(e).breakAfter === 'avoid')"
    )
    assert kept
    whole = page.evaluate(
        "[...document.querySelectorAll('figure, .card, .whole')].every("
        "e => getComputedStyle(e).breakInside === 'avoid')"
    )
    assert whole


def test_tables_are_saved_as_csv(visit, pages):
    page = visit(pages["hostile audit"])
    with page.expect_download() as waiting:
        page.locator("a[download='groups.csv']").click()
    with open(waiting.value.path(), encoding="utf-8-sig", newline="") as file:
        text = file.read()
    assert text.startswith("group,n,share")
    assert "\r\n'=cmd()," in text


def test_it_works_without_scripts(visit, pages, path):
    page = visit(pages["path"], java_script_enabled=False)
    assert page.locator(".panel:visible").count() == 1
    assert page.locator("#step-back").is_hidden()


def test_print_is_on_white_and_without_controls(visit, pages):
    page = visit(pages["path"], color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#step-back").is_hidden()
    assert page.locator(".download:visible").count() == 0
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")


def test_a_long_path_is_small_and_ready_at_once(visit, tmp_path):
    """20 models: under 0.5 MB whatever the rows, and the script is done when loading is."""
    rng = np.random.default_rng(0)
    n = 1200
    a = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 2)) + 0.1 * a[:, None]
    y = X.sum(axis=1) + rng.normal(size=n)
    path = eh.fairness_path(
        eh.FairRidge(classifier="lspc", max_iter=5, tol=1e-3), X, y, sensitive_features=a, cv=2,
        fairness_weights=np.geomspace(0.01, 10, 19), measure_with="lspc", random_state=0,
    )  # fmt: skip
    out = path.to_html(tmp_path / "long.html")
    assert out.stat().st_size < 5e5
    page = visit(out)
    assert page.locator("#step-forward").is_visible()  # shown by the script's last lines
    assert page.locator("[data-panel]").count() == 20

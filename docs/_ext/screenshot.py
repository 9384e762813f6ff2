"""The picture of the README and of the home page: the upper part of the page that the demo writes.

    python docs/_ext/screenshot.py      # needs Chromium

Taken again when the words or the looks of that page have changed.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parents[1] / "_static" / "report.png"
FIRST, LAST = "The gap in units of the score", "What the selected model changes"
# Sections from the first to the last; the heading of the page stays above them.
TRIM = """([first, last]) => {
  const sections = [...document.querySelectorAll("section")].filter((s) => s.querySelector("h2"));
  const at = (words) => sections.findIndex((s) => s.querySelector("h2").textContent === words);
  const [begin, end] = [at(first), at(last)];
  sections.forEach((s, k) => { if (k < begin || k > end) s.style.display = "none"; });
  const rest = document.querySelectorAll("footer, button, a[download]");
  rest.forEach((e) => { e.style.display = "none"; });
  return sections[end].getBoundingClientRect().bottom;
}"""


def take(page_file: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1060, "height": 900}, color_scheme="light")
        page.goto(page_file.as_uri())
        height = page.evaluate(TRIM, [FIRST, LAST])
        size = {"x": 0, "y": 0, "width": 1060, "height": height + 20}
        page.screenshot(path=PICTURE, clip=size, full_page=True)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        demo = [sys.executable, "-m", "evenhand", "demo", "--out", f"{folder}/demo"]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
        take(Path(folder, "demo", "report.html"))

"""How long until a page shows its first plot, in Debian's Chromium, opened from disk?

Counted by the browser itself, from the start of the navigation to the moment at which the first
plot's SVG stands in the document; each time in a new browser with an empty profile. The control is
a page without any script, opened in turns with it: what the browser needs for a file of that size.
`python -m bench.first_plot PAGE.html …` measures pages of one's own; with none, the page of the
made-up sweep of `bench.page`. Needs the extra `browser` and Debian's chromium.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.page import store
from bench.server import verdict

TIMES, MOST_S, WAIT_MS = 7, 1.5, 60_000
ARGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WATCH = """
new MutationObserver((_, seen) => {
  const plot = document.querySelector('[data-drawn] svg.main-svg');
  if (!plot) return;
  seen.disconnect();
  requestAnimationFrame(() => { window.firstPlotMs = performance.now(); });
}).observe(document, {childList: true, subtree: true, attributes: true});
addEventListener('load', () => { window.loadedMs = performance.now(); });
"""


def opened(playwright: Any, page: Path, what: str) -> float:
    """Return after how many seconds `what` was set, in a browser of its own."""
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[*ARGS])
    try:
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.set_default_timeout(WAIT_MS)
        tab.add_init_script(WATCH)
        tab.goto(page.resolve().as_uri())
        tab.wait_for_function(f"window.{what} !== undefined")
        return float(tab.evaluate(f"window.{what}")) / 1e3
    finally:
        browser.close()


def measure(playwright: Any, page: Path, bare: Path) -> int:
    """Open page and control in turns; return whether the limit was missed."""
    bare.write_text(f"<!doctype html><title>x</title><p>{'x' * page.stat().st_size}", "utf-8")
    plots, controls = [], []
    for _ in range(TIMES):
        plots.append(opened(playwright, page, "firstPlotMs"))
        controls.append(opened(playwright, bare, "loadedMs"))
    size = page.stat().st_size / 1e6
    print(f"  a page of text of the same size: {statistics.median(controls):.2f} s "
          f"({min(controls):.2f}-{max(controls):.2f})")  # fmt: skip
    name = f"first plot of {page.name}, {size:.1f} MB ({min(plots):.2f}-{max(plots):.2f})"
    return verdict(name, statistics.median(plots), MOST_S, "s")


def made_up(folder: Path) -> Path:
    """Return the page of the made-up sweep of 200 cells."""
    store(folder / "study")
    page = folder / "page.html"
    words = ["report", str(folder / "study"), "--html", str(page)]
    subprocess.run([sys.executable, "-m", "concbench", *words], check=True)
    return page


def main(*pages: str) -> int:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        found = [Path(page) for page in pages] or [made_up(Path(scratch))]
        return sum(measure(playwright, page, Path(scratch) / "bare.html") for page in found)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

"""Debian's Chromium driven by Playwright: what the tests of the pages share."""

import shutil
from dataclasses import dataclass, field

import pytest

CHROMIUM = shutil.which("chromium")
MARKS = [
    pytest.mark.system,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium"),
    # Playwright's own event loop is closed by its process, after the tests.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ARGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 60_000


@dataclass
class Opened:
    """A page with what it complained about and asked for."""

    page: object
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


def draw_all(page):
    """Scroll to every plot and wait until it is drawn; return their number."""
    keys = page.eval_on_selector_all("[data-figure]", "all => all.map(p => p.dataset.figure)")
    for key in keys:
        page.locator(f"#plot-{key}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#plot-{key}[data-drawn] svg.main-svg", state="attached")
    return len(keys)

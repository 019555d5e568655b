"""`python tools/guide_pictures.py REAL STUDY`: the guides' pictures, taken from two pages.

REAL is the page of a measured sweep, STUDY that of a made-up one with many lanes (`bench.page`
keeps its study where it is given a folder). Needs Playwright and Debian's Chromium.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
ARGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-sync", "--no-first-run")
DESKTOP, PHONE = (1180, 760), (362, 740)
WAIT_MS = 60_000


def top(page: Any, name: str) -> None:
    """Take what a reader sees first."""
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=IMAGES / f"{name}.png")


def plot(page: Any, key: str, name: str) -> None:
    """Take one plot with its title."""
    found = page.locator(f"#plot-{key}")
    if not found.count():
        sys.stderr.write(f"no plot {key}: {name}.png stays as it is\n")
        return
    found.scroll_into_view_if_needed()
    page.wait_for_selector(f"#plot-{key}[data-drawn] svg.main-svg", state="attached")
    page.locator("figure", has=found).screenshot(path=IMAGES / f"{name}.png")


def main() -> int:
    """Take every picture; return the exit code."""
    parser = argparse.ArgumentParser(prog="tools/guide_pictures.py", description=__doc__)
    parser.add_argument("real", type=Path)
    parser.add_argument("made_up", type=Path)
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=[*ARGS])

        def opened(path: Path, size: tuple[int, int], scheme: str) -> Any:
            width, height = size
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.set_default_timeout(WAIT_MS)
            page.goto(path.resolve().as_uri())
            return page

        made_up = opened(args.made_up, DESKTOP, "light")
        top(made_up, "report-top")
        plot(made_up, "throughput", "report-throughput")
        plot(made_up, "decode-context", "report-context")
        real = opened(args.real, DESKTOP, "light")
        top(real, "report-real")
        plot(real, "timeline", "report-timeline")
        plot(real, "heat-map", "report-heat-map")
        plot(opened(args.real, PHONE, "dark"), "throughput", "report-phone-dark")
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Each plot of the page as an image, drawn by a browser of this machine without a network."""

from __future__ import annotations

import base64
import binascii
import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from concbench.analyse.exhibits import Exhibit
from concbench.errors import MissingExtra, OutputUnusable
from concbench.report.build import build_view
from concbench.report.figure import plain
from concbench.report.figures import figures_of
from concbench.report.html import drawn, environment, plotly_script, policy, read_template
from concbench.result import Result

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
TIMEOUT_S = 180
_DRAW_MS = 120_000
_IMAGES = re.compile(r'<pre id="images">(.*?)</pre>', re.DOTALL)
_PREFIX = "data:image/png;base64,"
_NAME = re.compile(r"[a-z0-9-]{1,80}")


def write_pngs(result: Result, folder: Path, exhibits: Sequence[Exhibit] = ()) -> list[Path]:
    """Write one image for each plot, and each choice of it, into the folder; return the files.

    Raises MissingExtra without a browser, OutputUnusable where the browser draws nothing or the
    folder cannot be written.
    """
    browser = find_browser()
    figures = figures_of(build_view(result).series, result, exhibits)
    if not figures:
        return []
    told: dict[str, Any] = {}
    for figure in figures:
        words = [plain(panel.label, 60) for panel in figure.panels]
        told[figure.key] = drawn(figure) | {"words": words}
    images = _draw(browser, _page(told))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(folder, name, data) for name, data in images.items()]
    except OSError as error:
        raise OutputUnusable(f"cannot write into {folder}: {error.strerror}") from error


def find_browser() -> str:
    """Return the path of a browser of Chromium's family. Raises MissingExtra without one."""
    for name in BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    raise MissingExtra("images need a browser: install chromium (or open the page from --html)")


def _page(told: dict[str, Any]) -> str:
    """Return a page that draws every plot and leaves the images in its text."""
    plotly = plotly_script()
    own = read_template("plots.js") + read_template("png.js")
    rules = policy([plotly, own]).replace("img-src data:", "img-src data: blob:")
    template = environment().get_template("png.html.jinja")
    return template.render(figures_json=told, plotly=plotly, own_script=own, policy=rules)


def _draw(browser: str, page: str) -> dict[str, str]:
    """Return the images by name as data URLs."""
    with tempfile.TemporaryDirectory(prefix="concbench-png-") as scratch:
        path = Path(scratch) / "plots.html"
        path.write_text(page, encoding="utf-8")
        flags = [*FLAGS, f"--user-data-dir={scratch}/profile"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium does not start as root otherwise.
        command = [
            browser,
            *flags,
            f"--virtual-time-budget={_DRAW_MS}",
            "--dump-dom",
            path.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OutputUnusable(f"{browser} drew no images: {error}") from error
    found = _IMAGES.search(done.stdout.decode("utf-8", "replace"))
    if found is None:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no output"]
        raise OutputUnusable(f"{browser} drew no images: {lines[-1][:200]}")
    images = json.loads(html.unescape(found.group(1)))
    return {str(name): str(data) for name, data in images.items()}


def _write(folder: Path, name: str, data: str) -> Path:
    """Write one image. Raises OutputUnusable for what is none."""
    if not _NAME.fullmatch(name) or not data.startswith(_PREFIX):
        raise OutputUnusable("the browser returned something that is no image")
    path = folder / f"{name}.png"
    try:
        path.write_bytes(base64.b64decode(data.removeprefix(_PREFIX), validate=True))
    except binascii.Error as error:
        raise OutputUnusable("the browser returned something that is no image") from error
    return path

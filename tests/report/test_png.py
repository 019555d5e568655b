import base64
import os
import stat

import pytest

from concbench.errors import MissingExtra, OutputUnusable
from concbench.report import png
from tests.report.conftest import burst

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


def browser(tmp_path, monkeypatch, prints):
    """Put a program that prints what a browser would onto PATH, as the only one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "chromium"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{prints}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")


def test_without_a_browser_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="images need a browser: install chromium"):
        png.write_pngs(burst(), tmp_path / "images")
    assert not (tmp_path / "images").exists()


def test_images_are_written_by_name(tmp_path, monkeypatch):
    told = f'<pre id="images">{{&quot;ttft&quot;:&quot;data:image/png;base64,{PIXEL}&quot;}}</pre>'
    browser(tmp_path, monkeypatch, told)
    (path,) = png.write_pngs(burst(), tmp_path / "images")
    assert path.name == "ttft.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "prints",
    [
        "no such page",
        '<pre id="images">{"../x":"data:image/png;base64,AA"}</pre>',
        '<pre id="images">{"ttft":"data:image/png;base64,!"}</pre>',
        '<pre id="images">{"ttft":"text"}</pre>',
    ],
)
def test_a_browser_that_draws_nothing_is_an_error(tmp_path, monkeypatch, prints):
    browser(tmp_path, monkeypatch, prints)
    with pytest.raises(OutputUnusable):
        png.write_pngs(burst(), tmp_path / "images")


def test_nothing_to_draw_is_no_image(tmp_path, monkeypatch):
    browser(tmp_path, monkeypatch, "")
    assert png.write_pngs(burst(()), tmp_path / "images") == []

"""The pictures of the documentation are those that the code draws, and can be read without eyes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "concepts" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    code = (
        "import sys, json; sys.path.insert(0, 'tools'); import concept_pictures as made; "
        "print(json.dumps({name: draw() for name, draw in made.PICTURES.items()}))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True, timeout=120)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_what_is_stored_is_what_is_drawn(drawn: dict[str, str]) -> None:
    assert {path.stem for path in PICTURES.glob("*.svg")} == set(drawn)
    for name, text in drawn.items():
        stored = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert stored == text, f"{name}: run python tools/concept_pictures.py"


def test_each_says_what_it_shows(drawn: dict[str, str]) -> None:
    for text in drawn.values():
        tree = ET.fromstring(text)
        assert tree.get("role") == "img"
        told = tree.findtext(f"{SVG}desc") or ""
        assert tree.findtext(f"{SVG}title")
        assert len(told) > 80
        assert re.search(r"\d", told)
        assert "prefers-color-scheme: dark" in text
        assert "<script" not in text
        assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}


def test_each_is_shown_with_an_alternative_text(drawn: dict[str, str]) -> None:
    page = (ROOT / "docs" / "concepts" / "numbers.md").read_text(encoding="utf-8")
    for name in drawn:
        found = re.search(rf"!\[([^\]]+)\]\(pictures/{name}\.svg\)", page)
        assert found is not None, name
        assert len(found[1]) > 60


def test_the_numbers_in_them_are_true(drawn: dict[str, str]) -> None:
    steady = re.search(r"steady: (\d+) tok/s.*whole batch: (\d+) tok/s", drawn["steady"], re.DOTALL)
    assert steady is not None
    # Eight in lockstep, a step of 16 + 8 · 1.5 ms.
    assert int(steady[1]) == pytest.approx(8 / 0.028, abs=2)
    assert int(steady[2]) < int(steady[1])
    assert "+0.0 %" not in drawn["agreement"]

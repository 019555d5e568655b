"""Running a command in a test and reading its result; the truth of the reference server."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from concbench.cli.main import main


def measured(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Run a measuring command; return its exit code and its result JSON."""
    code = main([*words, "--quiet", "--json", "-"])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    return code, json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))


def truth(url: str) -> dict[str, Any]:
    """Return what the reference server says really happened."""
    with urllib.request.urlopen(f"{url}/truth", timeout=10) as answer:
        return dict(json.load(answer))


def codes(result: dict[str, Any]) -> set[str]:
    """Return the codes of a result's doubts."""
    return {doubt["code"] for doubt in result["doubts"]}


def assert_sound(code: int, result: dict[str, Any]) -> None:
    """Assert that nothing fatal was found but a client that a busy machine held up."""
    fatal = [doubt for doubt in result["doubts"] if doubt["severity"] == "fatal"]
    assert {doubt["code"] for doubt in fatal} <= {"client_bound"}, fatal
    assert code == (4 if fatal else 0)


def drawn_in(page: Path) -> dict[str, list[str]]:
    """Return the figures of a page by key, each with the labels of its panels."""
    found = re.search(
        r'<script type="application/json" id="figures">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert found, f"{page} holds no figures"
    figures = json.loads(found[1])
    return {key: [panel["label"] for panel in each["panels"]] for key, each in figures.items()}

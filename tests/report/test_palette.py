"""The colours of the pages: contrast by WCAG AA, and apart for colour-blind eyes. All computed."""

from __future__ import annotations

import re
from importlib import resources
from itertools import combinations

import pytest

from tests.report.colours import VIENOT, as_seen, contrast, distance, lab, linear, variables

TEXT, GRAPHIC = 4.5, 3.0
"""WCAG 2.2, 1.4.3 and 1.4.11: least contrast of text, and of what a plot draws."""

APART = 10.0
"""Least CIELAB distance of two series, in every kind of sight: four times what can just be told."""

TEMPLATES = resources.files("concbench.report") / "templates"
SHEETS = {
    name: dict(
        zip(("light", "dark"), variables((TEMPLATES / name).read_text("utf-8")), strict=True)
    )
    for name in ("report.css", "follow.css")
}
PLOTS = (TEMPLATES / "plots.js").read_text("utf-8")
PAPER = {scheme: SHEETS["report.css"][scheme]["paper"] for scheme in ("light", "dark")}


def plot_palette(scheme: str) -> list[str]:
    found = re.search(rf"{scheme.upper()} = \[(.*?)\]", PLOTS)
    assert found is not None
    return re.findall(r"#[0-9A-Fa-f]{6}", found[1])


def plot_look(scheme: str) -> dict[str, str]:
    """The other colours of plots: ink, rule, quiet, paper, panel."""
    blocks = re.findall(r"\{ palette: (DARK|LIGHT), (.*?)\n", PLOTS)
    block = next(text for name, text in blocks if name == scheme.upper())
    return dict(re.findall(r'(\w+): "(#[0-9a-f]{6})"', block))


def series(scheme: str) -> dict[str, list[str]]:
    own = SHEETS["follow.css"][scheme]
    return {"plots": plot_palette(scheme), "watch": [own[f"s{place}"] for place in range(6)]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sheet", list(SHEETS))
def test_text_stands_out_from_paper_panel_and_banner(sheet: str, scheme: str) -> None:
    colours = SHEETS[sheet][scheme]
    papers = {name: colours[name] for name in ("paper", "panel") if name in colours}
    for name in ("ink", "quiet", "accent", "fatal", "warning"):
        for paper, behind in papers.items():
            assert contrast(colours[name], behind) >= TEXT, f"{name} on {paper}"
    for name in ("ink", "fatal", "quiet"):
        assert contrast(colours[name], colours["fatal-paper"]) >= TEXT, f"{name} on a banner"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_series_and_words_of_plots_stand_out(scheme: str) -> None:
    look = plot_look(scheme)
    assert look["paper"] == PAPER[scheme]
    for name in ("ink", "quiet"):
        assert contrast(look[name], look["paper"]) >= TEXT, name
    assert contrast(look["ink"], look["panel"]) >= TEXT
    for where, palette in series(scheme).items():
        assert len(palette) >= 6
        for colour in palette:
            assert contrast(colour, PAPER[scheme]) >= GRAPHIC, f"{where}: {colour}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("blindness", [None, *VIENOT])
def test_series_can_be_told_apart(scheme: str, blindness: str | None) -> None:
    for where, palette in series(scheme).items():
        for one, other in combinations(palette, 2):
            found = distance(one, other, blindness)
            assert found >= APART, f"{where}: {one} and {other} are {found:.1f} apart"


def test_the_measures_themselves() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert lab(linear("#ffffff")) == pytest.approx((100, 0, 0), abs=0.02)
    assert lab(linear("#ff0000")) == pytest.approx((53.24, 80.09, 67.20), abs=0.05)
    for blindness in VIENOT:
        assert as_seen("#808080", blindness) == pytest.approx(linear("#808080"), abs=1e-4)
        # Of equal brightness to such an eye, and far apart to another's.
        assert distance("#D55E00", "#8A8A00") > 30
    assert distance("#D55E00", "#B07800", "deuteranopia") < 3

"""How the plots look, against stored screenshots that are tiny on purpose.

Another machine has other fonts and another Chromium: letters have other edges and take other room,
so that single pixels tell nothing. A shot is reduced to squares of 16 pixels, each with its most
colourful pixel, or its mean where there is no colour: text is grey and becomes a shade, while every
line, bar, band and cell of a plot is coloured and stays, however thin it is. A square counts as
different where neither it nor a neighbour looks as before. What may differ was tried: other fonts
stay inside the tolerance, a missing series, a missing plot or the other theme lie far outside. Both
are tests here.

`CONCBENCH_SHOTS=write make test-page` stores them anew; look at them before you commit.
"""

import io
import os
from pathlib import Path

import pytest

from tests.system.browsing import MARKS, WAIT_MS, draw_all

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
image = pytest.importorskip("PIL.Image", reason="needs the extra `browser`")
np = pytest.importorskip("numpy")
pytestmark = MARKS

FOLDER = Path(__file__).parent / "shots"
SQUARE = 16
COLOURED = 48
"""Of 255, largest less smallest channel: from here on a pixel is coloured, and no text."""

DIFFERS = 48
"""Of 255, in any channel: from here on two squares look different."""

TOLERATED = 0.10
"""Share of squares, of the coloured ones or of the others, that may differ."""

WIDTHS = {"desktop": 1280, "phone": 400}
PARTS = {
    "plot": "#plot-throughput",
    "timeline": "#plot-timeline",
    "heat": "[data-figure]:has(.heatmaplayer)",
}


def shot(page, part):
    """A part of the page, reduced to squares: an array of rows × columns × 3."""
    place = page.locator(PARTS[part]).first
    place.scroll_into_view_if_needed()
    page.mouse.move(0, 0)  # no hover
    seen = image.open(io.BytesIO(place.screenshot(timeout=WAIT_MS))).convert("RGB")
    return reduced(np.asarray(seen, dtype=float))


def reduced(seen):
    """The squares of an image; what is left at its right and lower edge is cut off."""
    rows, columns = seen.shape[0] // SQUARE, seen.shape[1] // SQUARE
    cut = seen[: rows * SQUARE, : columns * SQUARE].reshape(rows, SQUARE, columns, SQUARE, 3)
    squares = cut.swapaxes(1, 2).reshape(rows, columns, SQUARE * SQUARE, 3)
    chroma = squares.max(axis=3) - squares.min(axis=3)
    brightest = np.take_along_axis(squares, chroma.argmax(axis=2)[..., None, None], axis=2)
    coloured = chroma.max(axis=2) >= COLOURED
    return np.where(coloured[..., None], brightest[:, :, 0], squares.mean(axis=2))


def difference(one, other):
    """The share of squares that differ, of the coloured or the plain ones, whichever is more."""
    height, width, _ = one.shape
    fitted = image.fromarray(other.astype("uint8")).resize(
        (width, height), image.Resampling.NEAREST
    )
    other = np.asarray(fitted, dtype=float)
    shares = []
    for left, right in ((one, other), (other, one)):
        unlike = nearest(left, right) > DIFFERS
        coloured = left.max(axis=2) - left.min(axis=2) >= COLOURED
        shares += [unlike[part].mean() for part in (coloured, ~coloured) if part.any()]
    return float(max(shares))


def nearest(one, other):
    """How far each square is from the likest of the same square and its neighbours in the other."""
    height, width, _ = one.shape
    padded = np.pad(other, ((1, 1), (1, 1), (0, 0)), mode="edge")
    shifted = [padded[y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return np.min([np.abs(one - each).max(axis=2) for each in shifted], axis=0)


def stored(part, device, scheme):
    return FOLDER / f"{part}-{device}-{scheme}.png"


def reference(part, device, scheme):
    return np.asarray(image.open(stored(part, device, scheme)).convert("RGB"), dtype=float)


@pytest.mark.parametrize("device", list(WIDTHS))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_plots_look_as_they_did(opened, device, scheme):
    page = opened("sweep", width=WIDTHS[device], scheme=scheme).page
    draw_all(page)
    for part in PARTS:
        now = shot(page, part)
        if os.environ.get("CONCBENCH_SHOTS") == "write":
            FOLDER.mkdir(exist_ok=True)
            image.fromarray(now.astype("uint8")).save(stored(part, device, scheme), optimize=True)
        before = reference(part, device, scheme)
        assert now.shape[1] == before.shape[1], f"{part}: as wide as before"
        assert abs(now.shape[0] / before.shape[0] - 1) <= 0.15, f"{part}: about as high as before"
        assert difference(before, now) <= TOLERATED, part


@pytest.mark.parametrize("font", ["DejaVu Serif, serif", "DejaVu Sans Mono, sans-serif"])
def test_other_fonts_are_no_difference(opened, font):
    page = opened("sweep").page
    draw_all(page)
    page.add_style_tag(content=f"* {{ font-family: {font} !important; }}")
    for part in PARTS:
        assert difference(reference(part, "desktop", "light"), shot(page, part)) <= TOLERATED, part


@pytest.mark.parametrize(
    "hidden",
    [".scatterlayer", ".scatterlayer .trace:nth-child(even)", ".barlayer", ".heatmaplayer"],
)
def test_what_is_missing_is_a_difference(opened, hidden):
    page = opened("sweep").page
    draw_all(page)
    page.add_style_tag(content=f"{hidden} {{ visibility: hidden; }}")
    found = {p: difference(reference(p, "desktop", "light"), shot(page, p)) for p in PARTS}
    assert max(found.values()) > 2 * TOLERATED, found


def test_the_other_theme_and_the_other_plot_are_differences():
    light, dark = (reference("plot", "desktop", scheme) for scheme in ("light", "dark"))
    assert difference(light, dark) > 0.5
    assert difference(light, reference("timeline", "desktop", "light")) > 2 * TOLERATED


def test_the_stored_shots_are_small():
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.png")}
    assert len(sizes) == len(PARTS) * len(WIDTHS) * 2
    assert max(sizes.values()) < 8_000

"""The page in a real browser: Debian's Chromium, driven by Playwright, opening a file from disk."""

import io
import json
import re

import pytest

from concbench.report.png import write_pngs
from tests.report.synthetic import Engine
from tests.report.test_figures import judged
from tests.system.browsing import MARKS, WAIT_MS, draw_all

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
pytestmark = MARKS


@pytest.mark.parametrize("name", ["sweep", "burst", "comparison", "hostile", "hostile-sweep"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_plot_is_drawn_without_a_complaint_or_a_request(opened, name, scheme):
    made = opened(name, scheme=scheme)
    assert draw_all(made.page) >= 6
    assert made.said == []
    assert [url for url in made.asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in made.asked if url.startswith("file:")]) == 1


@pytest.mark.parametrize("name", ["hostile", "hostile-sweep"])
def test_hostile_text_makes_no_element_and_runs_nothing(opened, name):
    page = opened(name).page
    draw_all(page)
    assert page.locator("script").count() == 3
    assert page.locator("img, iframe, object, embed, link, base, form").count() == 0
    assert page.evaluate("document.title").startswith("concbench")
    names = page.eval_on_selector_all("*", "all => all.flatMap(e => e.getAttributeNames())")
    assert [attribute for attribute in names if attribute.startswith("on")] == []


def test_hovering_shows_the_number_and_its_definition(opened):
    page = opened("burst").page
    page.locator("#plot-throughput .scatterlayer .point").nth(1).hover(force=True)
    page.wait_for_selector("#plot-throughput .hoverlayer text")
    shown = page.locator("#plot-throughput .hoverlayer").inner_html()
    assert "108" in re.sub("<[^>]*>", "", shown)
    tip = page.locator("#tip-throughput")
    assert not tip.is_visible()
    page.locator("figcaption a[href='#def-steady']").first.hover()
    assert tip.is_visible()
    assert "tokens stamped inside the window" in tip.inner_text()


def test_the_keyboard_reaches_every_plots_definition_choice_and_data(opened):
    page = opened("sweep").page
    reached = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(e => e.dataset.csv ? 'csv ' + e.dataset.csv : e.dataset.choose "
                "? 'choose ' + e.dataset.choose : e.getAttribute('aria-describedby') || '')"
                "(document.activeElement)"
            )
        )
        if "csv instrument" in reached:
            break
    keys = page.eval_on_selector_all("[data-figure]", "all => all.map(p => p.dataset.figure)")
    for key in keys:
        assert f"csv {key}" in reached
        assert f"tip-{key}" in reached
    assert "choose timeline" in reached


def test_a_choice_changes_plot_table_words_and_csv(opened):
    page = opened("sweep").page
    draw_all(page)
    table = page.locator("#table-timeline")
    before = table.text_content(), page.locator("#plot-timeline").get_attribute("aria-label")
    page.locator("[data-choose=timeline]").select_option(index=2)
    after = table.text_content(), page.locator("#plot-timeline").get_attribute("aria-label")
    assert before[0] != after[0]
    assert before[1] != after[1]
    with page.expect_download() as waiting:
        page.locator("[data-csv=timeline]").click()
    assert waiting.value.suggested_filename == "concbench-timeline.csv"
    text = waiting.value.path().read_text(encoding="utf-8-sig")
    data = json.loads(page.locator("#figures").text_content())
    assert text.split() == data["timeline"]["panels"][2]["csv"].split()


def test_dark_mode_changes_paper_and_plots(opened):
    light, dark = (opened("burst", scheme=scheme).page for scheme in ("light", "dark"))
    paper = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(paper) == "rgb(255, 255, 255)"
    assert dark.evaluate(paper) == "rgb(20, 23, 27)"
    ink = "getComputedStyle(document.querySelector('#plot-throughput .xtick text')).fill"
    assert light.evaluate(ink) != dark.evaluate(ink)
    light.emulate_media(color_scheme="dark")
    tick = light.locator("#plot-throughput .xtick text").first
    playwright.expect(tick).to_have_css("fill", dark.evaluate(ink), timeout=WAIT_MS)


def contrast(page, selector):
    """The contrast of an element's text against the page's paper, by WCAG 2's formula."""
    colours = page.evaluate(
        "s => [getComputedStyle(document.querySelector(s)).color, "
        "getComputedStyle(document.body).backgroundColor]",
        selector,
    )

    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(luminance(colour) for colour in colours)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_paper(opened, scheme):
    page = opened("sweep", scheme=scheme).page
    for selector in ("h1", ".kicker", "nav a", ".footnote", ".line", ".severity", "summary", "td"):
        assert contrast(page, selector) >= 4.5, selector


@pytest.mark.parametrize("name", ["sweep", "comparison", "hostile"])
def test_a_phone_scrolls_down_only(opened, name):
    page = opened(name, width=360).page
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    widths = page.eval_on_selector_all("svg.main-svg", "all => all.map(s => s.clientWidth)")
    assert max(widths) <= 360


def test_rows_of_a_table_are_one_line_high_on_a_phone(opened):
    page = opened("sweep", width=360).page
    heights = page.eval_on_selector_all(
        "table.results tbody tr", "all => all.map(row => row.clientHeight)"
    )
    assert max(heights) < 45


def test_printing_draws_every_plot_on_white(opened):
    page = opened("sweep", scheme="dark").page
    document = page.pdf(prefer_css_page_size=True)
    assert document.startswith(b"%PDF")
    assert page.locator("[data-figure]:not([data-drawn])").count() == 0
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("[data-csv]").first.is_visible()


def test_a_print_fits_the_paper_and_names_what_is_shown(opened):
    page = opened("sweep", width=1600).page
    draw_all(page)
    page.locator("[data-choose=timeline]").select_option(index=2)
    label = page.locator("[data-choose=timeline] option").nth(2).text_content()
    assert not page.locator("#shown-timeline").is_visible()
    before = page.locator("#plot-timeline svg.main-svg").first.evaluate("svg => svg.clientWidth")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("#shown-timeline").is_visible()
    assert page.locator("#shown-timeline").text_content() == label
    widths = page.eval_on_selector_all("svg.main-svg", "all => all.map(s => s.clientWidth)")
    assert max(widths) <= 642, "17 cm at 96 px an inch, what A4 has between margins of 2 cm"
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.wait_for_timeout(200)
    after = page.locator("#plot-timeline svg.main-svg").first.evaluate("svg => svg.clientWidth")
    assert after == before


def test_a_lone_line_has_its_name(opened):
    page = opened("lone").page
    assert page.locator("#plot-throughput .legendtext").all_text_contents() == ["batch (classic)"]


def test_two_screenshots_of_one_plot_are_alike_and_not_blank(opened):
    image = pytest.importorskip("PIL.Image")
    np = pytest.importorskip("numpy")
    shots = []
    for _ in range(2):
        page = opened("burst").page
        bytes_ = page.locator("#plot-throughput").screenshot(timeout=WAIT_MS)
        shots.append(np.asarray(image.open(io.BytesIO(bytes_)).convert("L"), dtype=float))
    first, second = shots
    assert first.shape == second.shape
    assert np.mean(np.abs(first - second) > 32) < 0.01, "at most 1 % of the pixels differ"
    assert np.mean(first < 200) > 0.005, "something is drawn"


def test_images_of_every_plot(tmp_path):
    result, exhibits = judged([Engine("a", slots=8)], (256,), (1, 4), rounds=1)
    paths = write_pngs(result, tmp_path / "images", exhibits)
    names = {path.stem for path in paths}
    assert {"throughput", "ttft", "timeline-1", "timeline-2"} <= names
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
        assert width in (1600, 2400)
        assert height > 600


def test_the_first_plot_is_not_held_up_by_the_others(opened):
    page = opened("sweep").page
    drawn = page.locator("[data-drawn]").count()
    assert 0 < drawn < page.locator("[data-figure]").count()

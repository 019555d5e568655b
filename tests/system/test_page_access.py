"""The pages without a mouse, without colour, with little sight or no wish for motion."""

import io
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from concbench.store.correct import retract
from concbench.store.now import NowFile
from concbench.store.read import open_study
from tests.cli.studies import create, interleaved
from tests.report.colours import contrast
from tests.system.browsing import MARKS, WAIT_MS, draw_all

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
pytestmark = MARKS

REPORTS = ("sweep", "comparison", "hostile")
MOST_TABS = 1_500
OPERABLE = "a[href], button, select, summary, input, [tabindex='0']"

NUMBER_THEM = f"""
() => [...document.querySelectorAll("{OPERABLE}")]
  .filter(e => e.checkVisibility() && !e.closest("svg"))
  .map((e, at) => (e.dataset.at = at, e.tagName + " " + (e.getAttribute("aria-label")
    || e.textContent).trim().slice(0, 60)))
"""

FOCUSED = """
() => {
  const e = document.activeElement, style = getComputedStyle(e);
  return [e.dataset.at ?? null, style.outlineStyle, parseFloat(style.outlineWidth)];
}
"""

TEXTS = """
() => {
  const solid = (text) => {
    const found = /^rgba?\\(([^)]*)\\)/.exec(text);
    if (!found) return null;
    const parts = found[1].split(/[ ,/]+/).map(Number);
    return parts.length < 4 || parts[3] >= 0.99 ? parts.slice(0, 3) : null;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = solid(getComputedStyle(e).backgroundColor);
      if (colour) return colour;
    }
    return [255, 255, 255];
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
    if (!text || !e.checkVisibility({ visibilityProperty: true })) continue;
    if (e.closest("mark, option, .heatmaplayer")) continue;
    const style = getComputedStyle(e), svg = e.closest("svg");
    const ink = solid(svg ? style.fill : style.color);
    const pair = JSON.stringify([ink, behind(svg ? svg.parentElement : e)]);
    if (!found.has(pair)) found.set(pair, e.tagName + ": " + text.slice(0, 40));
  }
  return [...found].map(([pair, text]) => [...JSON.parse(pair), text]);
}
"""

MOVING = """
() => [...document.querySelectorAll("*")].filter(e => {
  const style = getComputedStyle(e);
  const long = (text) => text.split(",").some(part => parseFloat(part) > 0);
  return (style.animationName !== "none" && long(style.animationDuration))
    || long(style.transitionDuration) || style.scrollBehavior === "smooth";
}).map(e => e.tagName + "." + e.className)
"""


@pytest.fixture
def watched(tmp_path):
    """The address of `concbench watch` over a study that is being written, and what writes it."""
    folder = tmp_path / "studies" / "running"
    interleaved(tmp_path / "studies" / "done", {"a": {1: 50, 4: 150}, "b": {1: 60, 4: 190}})
    with create(folder, {"a": {}}, command="burst"):
        words = [sys.executable, "-m", "concbench", "watch", str(tmp_path / "studies")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            yield child.stdout.readline().decode().strip(), NowFile(folder)
            child.terminate()
            child.wait()


def hexed(parts):
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def all_contrasts(page):
    """Each pair of text and ground once, with one text that has it."""
    found = page.evaluate(TEXTS)
    assert len(found) >= 3
    return [(contrast(hexed(ink), hexed(ground)), text) for ink, ground, text in found]


@pytest.mark.parametrize("name", REPORTS)
def test_tab_reaches_everything_that_can_be_used_and_shows_where_it_is(opened, name):
    page = opened(name).page
    wanted = page.evaluate(NUMBER_THEM)
    assert len(wanted) > 20
    reached, unseen = set(), []
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        at, outline, width = page.evaluate(FOCUSED)
        if at is not None and int(at) in reached and len(reached) == len(wanted):
            break
        if at is not None:
            reached.add(int(at))
            if outline == "none" or width < 1:
                unseen.append(wanted[int(at)])
    missing = [text for at, text in enumerate(wanted) if at not in reached]
    assert missing == []
    assert unseen == []


def test_a_button_a_choice_and_a_fold_work_by_keys_alone(opened):
    page = opened("sweep").page
    button = page.locator("[data-csv]").first
    button.focus()
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    assert waiting.value.suggested_filename.endswith(".csv")
    box = page.locator("[data-choose=timeline]")
    box.focus()
    before = page.locator("#table-timeline").text_content()
    page.keyboard.press("ArrowDown")
    playwright.expect(page.locator("#table-timeline")).not_to_have_text(before, timeout=WAIT_MS)
    fold = page.locator("details:not([open]) > summary:visible").first
    fold.evaluate("e => { e.parentElement.dataset.fold = 'yes'; e.focus(); }")
    page.keyboard.press("Space")
    assert page.locator("[data-fold]").get_attribute("open") is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", REPORTS)
def test_every_text_that_is_seen_stands_out(opened, name, scheme):
    page = opened(name, scheme=scheme).page
    draw_all(page)
    weak = [(round(ratio, 2), text) for ratio, text in all_contrasts(page) if ratio < 4.5]
    assert weak == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_numbers_of_the_heat_map_stand_out_from_their_cells(opened, scheme):
    image = pytest.importorskip("PIL.Image")
    page = opened("sweep", scheme=scheme).page
    draw_all(page)
    plot = page.locator("[data-figure]", has=page.locator(".heatmaplayer text"))
    plot.scroll_into_view_if_needed()
    texts = plot.evaluate(
        "e => [...e.querySelectorAll('.heatmaplayer text')].map(t => {"
        " const own = t.getBoundingClientRect(), all = e.getBoundingClientRect();"
        " return [(own.left + own.right) / 2 - all.left, (own.top + own.bottom) / 2 - all.top,"
        " getComputedStyle(t).fill, t.textContent]; })"
    )
    page.add_style_tag(content=".heatmaplayer text { visibility: hidden; }")
    cells = image.open(io.BytesIO(plot.screenshot(timeout=WAIT_MS))).convert("RGB")
    assert len(texts) >= 8
    for x, y, fill, text in texts:
        ink = hexed([int(part) for part in re.findall(r"\d+", fill)[:3]])
        assert contrast(ink, hexed(cells.getpixel((round(x), round(y))))) >= 4.5, text


@pytest.mark.parametrize("name", REPORTS)
def test_every_plot_says_in_words_and_numbers_what_it_shows(opened, name):
    page = opened(name).page
    plots = page.eval_on_selector_all(
        "[data-figure]",
        "all => all.map(e => [e.dataset.figure, e.getAttribute('role'), e.ariaLabel,"
        " document.querySelectorAll(`#table-${e.dataset.figure} tbody tr`).length])",
    )
    assert len(plots) >= 6
    for key, role, words, rows in plots:
        assert role == "img", key
        assert len(words) > 20, key
        assert re.search(r"\d", words), key
        assert rows >= 1, key


@pytest.mark.parametrize("name", REPORTS)
def test_its_structure_can_be_walked_by_ear(opened, name):
    page = opened(name).page
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("main").count() == page.locator("h1").count() == 1
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(e => +e.tagName[1])")
    assert all(after <= before + 1 for before, after in pairwise(levels))
    nameless = page.eval_on_selector_all(
        "button, select, a[href], [role=region], [role=img]",
        "all => all.filter(e => !(e.ariaLabel || e.textContent).trim()).map(e => e.outerHTML)",
    )
    assert nameless == []
    loose = page.eval_on_selector_all(
        "thead th", "all => all.filter(e => !e.scope).map(e => e.textContent)"
    )
    assert loose == []


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_nothing_moves(opened, watched, motion):
    report = opened("sweep", motion=motion).page
    draw_all(report)
    assert report.evaluate(MOVING) == []
    watch = opened(watched[0], motion=motion).page
    watch.wait_for_selector("#studies a")
    assert watch.evaluate(MOVING) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_watch_page_shows_a_running_round_readably(opened, watched, scheme):
    url, now = watched
    made = opened(f"{url}?study=running", scheme=scheme)
    page = made.page
    said = {
        "cell": "a.short.c8", "phase": "measured", "elapsed_s": 3.0, "in_flight": 8, "ended": 0,
        "asked": 8, "running": 6.0, "waiting": 2.0, "client_tok_per_s": 412.3,
        "server_tok_per_s": 405.0, "left_s": 4.4,
        "signs": ["oversubscribed: 2 wait inside the server <b>"],
    }  # fmt: skip
    line = page.locator("#running")
    for _ in range(60):  # it is said again and again, as a process does that measures
        now.write(said)
        page.wait_for_timeout(500)
        if line.is_visible():
            break
    assert line.inner_text() == (
        "a.short.c8 measured for 3 s · 8 in flight · 0 of 8 ended · "
        "6 running on the server + 2 waiting · client 412.3 tok/s · server 405 tok/s · "
        "about 4 s left"
    )
    signs = page.locator("#signs li").all_inner_texts()
    assert signs == ["oversubscribed: 2 wait inside the server <b> (so far)"]
    assert [(r, text) for r, text in all_contrasts(page) if r < 4.5] == []
    now.close()
    playwright.expect(line).to_be_hidden(timeout=WAIT_MS)
    assert made.said == []


def test_the_watch_page_is_readable_when_narrow_and_tells_many_series_apart(
    opened, watched, tmp_path
):
    many = tmp_path / "studies" / "many"
    lanes = {f"lane{number}": {1: 50 + number, 256: 150 + number} for number in range(8)}
    interleaved(many, lanes, rounds=2)
    for info in open_study(many).rounds():
        if info.cell.lane == "lane7" and info.cell.concurrency == 1:
            retract(many, info.round_id, "wrong flags")
    made = opened(f"{watched[0]}?study=many", width=360)
    page = made.page
    page.wait_for_selector("#plot .dot")
    page.wait_for_function("document.querySelectorAll('#cells tbody tr').length === 16")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    heights = page.eval_on_selector_all(
        "#cells td:nth-child(4)", "all => all.map(e => e.getBoundingClientRect().height)"
    )
    assert max(heights) < 45
    sizes = page.eval_on_selector_all(
        "#plot text", "all => all.map(e => e.getBoundingClientRect().height)"
    )
    assert min(sizes) > 8
    assert {"tok/s", "requests at once (N)"} <= set(page.locator("#plot text").all_text_contents())
    styles = page.eval_on_selector_all("#plot g", "all => all.map(e => e.getAttribute('class'))")
    assert len(set(styles)) == len(styles) == 8
    assert page.locator("#plot .gone").count() == 1
    assert "2 retracted" in page.locator("#progress").inner_text()
    assert page.locator("#sentence").inner_text() != "Choose a study"
    above = page.locator("#corrections").bounding_box()["y"]
    assert above < page.locator("#plot").bounding_box()["y"]
    assert made.said == []

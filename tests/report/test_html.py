import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from concbench.domain import Doubt
from concbench.errors import OutputUnusable
from concbench.report import html
from concbench.report.html import to_html, unbroken, write_html
from tests.report.conftest import HOSTILE, burst, cell, comparison

MOST_BYTES = 8_000_000
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes, scripts and visible text of a page; unbalanced tags are an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.text, self.ids = [], [], [], [], []
        self.open = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag == "script":
            self.scripts.append([dict(attrs), ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def visible(self):
        return " ".join("".join(self.text).split())


def hostile():
    result = burst(lane=HOSTILE)
    result.target = None
    result.command = result.study = HOSTILE
    result.machine = {HOSTILE: HOSTILE}
    result.corrections = [{"round": HOSTILE, "why": HOSTILE, "by": HOSTILE}]
    result.cells.append(cell(1, lane="b" + HOSTILE))
    result.targets["b" + HOSTILE] = result.targets[HOSTILE]
    result.doubts.append(
        Doubt(
            code='x"><script>',
            severity="fatal",
            message=HOSTILE,
            cell=result.cells[0].cell,
            evidence={HOSTILE: HOSTILE},
        )
    )
    return result


@pytest.fixture(scope="module")
def pages():
    return {make.__name__: to_html(make()) for make in (burst, comparison, hostile)}


@pytest.mark.parametrize("name", ["burst", "comparison", "hostile"])
def test_loads_nothing_and_runs_only_its_own_scripts(pages, name):
    text = pages[name]
    page = Page(text)
    assert len(text.encode()) < MOST_BYTES
    for _, attribute, value in page.attributes:
        assert not attribute.startswith("on")
        if attribute in ("src", "href", "action", "srcset", "data", "poster"):
            assert attribute == "href"
            assert value.startswith("#")
    assert not set(page.tags) & {"img", "iframe", "object", "embed", "link", "base", "form"}
    assert [script[0].get("type") for script in page.scripts] == ["application/json", None, None]


@pytest.mark.parametrize("name", ["burst", "hostile"])
def test_policy_names_the_hashes_of_the_scripts(pages, name):
    page = Page(pages[name])
    (policy,) = [
        value
        for tag, attribute, value in page.attributes
        if (tag, attribute) == ("meta", "content") and "default-src" in value
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    for attributes, body in page.scripts:
        if "type" not in attributes:
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy


def test_links_lead_somewhere_and_ids_are_unique(pages):
    for text in pages.values():
        page = Page(text)
        assert len(page.ids) == len(set(page.ids))
        targets = [value[1:] for _, name, value in page.attributes if name == "href"]
        assert set(targets) <= set(page.ids)


def test_hostile_text_is_inert(pages):
    text = pages["hostile"]
    page = Page(text)
    assert '<script>alert("x")' in page.visible, "shown as text"
    own = re.sub(r"(?s)<script>.*?</script>", "", text)
    assert "<img" not in own
    assert "<script>alert" not in own
    assert "\x1b" not in own
    assert "\u202e" not in own
    assert "A" * 1_000 not in own
    (data,) = [body for attributes, body in page.scripts if attributes]
    assert "<" not in data
    assert json.loads(data)["throughput"]["panels"][0]["csv"].startswith("series,N,line,value")


def test_names_in_figures_carry_no_markup(pages):
    (data,) = [body for attributes, body in Page(pages["hostile"]).scripts if attributes]
    for figure in json.loads(data).values():
        for panel in figure["panels"]:
            assert all("<" not in trace.get("name", "") for trace in panel["data"])


def test_the_answer_comes_first_and_everything_is_there(pages):
    page = Page(pages["burst"])
    visible = page.visible
    parts = [
        "Every doubling still adds".lower(),
        "vllm 0.32.0",
        "kernel stamps",
        "57.10",
        "throughput against concurrency, tok/s",
        "prompts came out 3.1 % longer",
        "the instrument's own error",
        "lane nvfp4",
        "to measure the same again",
        "concbench burst 'http://***@box:8000' --levels 1,2,4,8",
        "this page is complete in itself",
    ]
    places = [visible.lower().index(part) for part in parts]
    assert places == sorted(places)
    assert "secret" not in visible


def test_corrections_and_interruption_stand_above_the_answer():
    result = burst()
    result.interrupted = True
    result.corrections = [{"round": "r1", "why": "flags lost"}]
    text = to_html(result)
    assert text.index("flags lost") < text.index("stopped before its end") < text.index("<h1>")


def test_figures_have_words_numbers_and_a_button(pages):
    page = Page(pages["comparison"])
    keys = [value for _, name, value in page.attributes if name == "data-figure"]
    assert keys == ["ratio", "throughput", "per-user", "ttft", "e2e", "agreement", "instrument"]
    assert page.tags.count("figure") == page.tags.count("button") == len(keys)
    for key in keys:
        assert f"table-{key}" in page.ids, "every plot has its table"
        assert f"tip-{key}" in page.ids, "and its definition"
    labels = [value for _, name, value in page.attributes if name == "aria-label"]
    assert any(
        label.startswith(
            "Throughput against concurrency. gguf: steady 60.53 ± 0.4 % tok/s at N = 1"
        )
        for label in labels
    )


def test_figures_share_one_unit():
    result = comparison()
    for one in result.cells[:4]:
        one.client.e2e_ms = one.client.ttft_ms
    (data,) = [body for attributes, body in Page(to_html(result)).scripts if attributes]
    (figure,) = json.loads(data)["e2e"]["panels"]
    assert figure["layout"]["yaxis"]["title"]["text"] == "s (logarithmic)"
    assert max(max(trace["y"]) for trace in figure["data"]) < 10


def test_keys_of_engines_are_hidden(pages):
    assert "hunter2" not in pages["comparison"]
    assert "--api-key ***" in Page(pages["comparison"]).visible


def test_without_cells_there_is_no_figure_and_no_plotly():
    text = to_html(burst(()))
    assert len(text) < 60_000
    assert "no cells were measured" in Page(text).visible


def test_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.html"
    write_html(burst((1,)), path)
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(OutputUnusable, match="name another file"):
        write_html(burst((1,)), tmp_path / "missing" / "report.html")


def test_a_doubt_stands_beside_the_number_it_touches():
    result = burst()
    result.doubts.append(
        Doubt(code="late_reads", severity="warning", message="read late", cell="nvfp4-short-n4")
    )
    text = to_html(result)
    row = text[text.index('class="level">4<') :].partition("</tr>")[0]
    assert 'href="#doubt-warning-late_reads" title="read late"' in row
    (data,) = [body for attributes, body in Page(text).scripts if attributes]
    trace = json.loads(data)["throughput"]["panels"][0]["data"][0]
    assert trace["marker"]["symbol"] == ["circle", "circle", "circle-open", "circle"]
    assert "late_reads" in trace["text"][2]
    assert "Hollow markers are in doubt: late_reads (N = 4)." in text


def test_what_was_said_before_a_correction_is_struck(pages):
    result = burst()
    result.corrections = [{"round": "r1", "why": "flags lost", "was": ["A is <b>faster</b>"]}]
    text = to_html(result)
    assert "<del><bdi>A is &lt;b&gt;faster&lt;/b&gt;</bdi></del>" in text
    assert text.index("<del>") < text.index("<h1>")


def test_a_comparison_shows_its_tables_lanes_and_crossover(pages):
    page = Page(pages["comparison"])
    visible = page.visible
    assert "nvfp4 against gguf" in visible
    assert "2.52 × [2.47, 2.57]" in visible
    assert "≠ unfair unless accepted" in visible
    assert "crossover N = 1 to 4" in pages["comparison"]


def test_the_library_is_vendored_with_its_licence():
    folder = resources.files("concbench.report") / "vendor"
    assert "MIT License" in (folder / "LICENSE.plotly").read_text()
    assert "Plotly" in html.plotly_script()
    assert "</script" not in html.plotly_script().lower()


def test_no_line_ends_between_a_number_and_its_sign():
    said = unbroken("193 ± 17 % at N = 4, 2.0 × that of a and 3 %")
    assert said == "193\u00a0±\u00a017\u00a0% at N\u00a0=\u00a04, 2.0\u00a0× that of a and 3\u00a0%"

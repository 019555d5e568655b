"""The pages as files, and a browser that opens them; both are made once."""

import pytest

from concbench.report.html import write_html
from tests.report.conftest import HOSTILE, burst, comparison
from tests.report.synthetic import Engine
from tests.report.test_figures import judged
from tests.report.test_figures_words import without_steady
from tests.report.test_html import hostile
from tests.system.browsing import ARGS, CHROMIUM, WAIT_MS, Opened


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=list(ARGS))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """The pages of a sweep, a comparison and a hostile study, as files."""
    folder = tmp_path_factory.mktemp("pages")
    result, exhibits = judged([Engine("a", slots=8), Engine("b")], (256, 512), (1, 2, 4, 16))
    bad, bad_exhibits = judged([Engine(HOSTILE), Engine("b")], (256, 512), (1, 2), rounds=2)
    made = {
        "sweep": (result, exhibits),
        "burst": (burst(), ()),
        "lone": (without_steady(burst(), 1, 2, 4, 8), ()),
        "comparison": (comparison(), ()),
        "hostile": (hostile(), ()),
        "hostile-sweep": (bad, bad_exhibits),
    }
    for name, (one, shown) in made.items():
        write_html(one, folder / f"{name}.html", shown)
    return folder


@pytest.fixture
def opened(browser, pages):
    contexts = []

    def open_page(name, width=1280, scheme="light", motion="no-preference"):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion=motion,
            accept_downloads=True,
        )
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        made = Opened(context.new_page())
        made.page.on("console", lambda message: made.said.append(message.text))
        made.page.on("pageerror", lambda error: made.said.append(str(error)))
        made.page.on("dialog", lambda dialog: (made.said.append("dialog"), dialog.dismiss()))
        made.page.on("request", lambda request: made.asked.append(request.url))
        if name.startswith("http:"):
            made.page.goto(name)
        else:
            made.page.goto((pages / f"{name}.html").as_uri())
            made.page.wait_for_selector("[data-drawn]", state="attached")
        return made

    yield open_page
    for context in contexts:
        context.close()

"""The generated reference names every command, option, doubt and key."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from concbench import result
from concbench.analyse.severity import SEVERITY
from concbench.cli.main import COMMANDS, command_parser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    path = ROOT / "tools" / "reference_pages.py"
    spec = importlib.util.spec_from_file_location("reference_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_option(pages: ModuleType) -> None:
    text = pages.commands()
    for name in COMMANDS:
        assert f"## concbench {name}\n" in text
        if name in pages.OWN_PARSER:
            continue
        for action in command_parser(name)._actions:
            for option in action.option_strings:
                assert option in text or option in ("-h", "--help"), (name, option)
            assert action.help, f"{name}: {action.dest} is not explained"


def test_every_doubt(pages: ModuleType) -> None:
    text = pages.doubts()
    assert all(f"| `{code}` |" in text for code in SEVERITY)


def test_every_key_of_the_result(pages: ModuleType) -> None:
    text = pages.result_json()
    for key in result.Result.__struct_fields__ + result.CellResult.__struct_fields__:
        assert f"| `{key}` |" in text


def test_every_page_of_the_navigation_is_made(pages: ModuleType) -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    for name, make in pages.PAGES.items():
        assert f"reference/{name}.md" in nav
        assert make().startswith("# ")

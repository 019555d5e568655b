"""The generated reference names every command, option, doubt and key."""

from __future__ import annotations

import importlib.util
import typing
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from concbench import result
from concbench.analyse.severity import SEVERITY
from concbench.cli.main import COMMANDS
from concbench.plan.model import Plan

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
        section = text.partition(f"## concbench {name}\n")[2].partition("\n## ")[0]
        for action in pages.parser_of(name)._actions:
            for option in action.option_strings:
                assert option in section or option in ("-h", "--help"), (name, option)
            assert action.help, f"{name}: {action.dest} is not explained"


def test_every_doubt(pages: ModuleType) -> None:
    text = pages.doubts()
    assert all(f"| `{code}` |" in text for code in SEVERITY)


def test_every_key_of_the_result(pages: ModuleType) -> None:
    text = pages.result_json()
    for struct in reachable(result.Result):
        section = text.partition(f"## {struct.__name__}\n")[2].partition("\n## ")[0]
        for key in struct.__struct_fields__:
            assert f"| `{key}` |" in section, (struct.__name__, key)


def reachable(struct: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    """Return the structs that a result can hold, itself included."""
    found, todo = set(), [struct]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.add(one)
        for hint in typing.get_type_hints(one).values():
            todo += [each for each in parts(hint) if is_struct(each)]
    return found


def parts(hint: object) -> list[object]:
    return [hint, *(inner for arg in typing.get_args(hint) for inner in parts(arg))]


def is_struct(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def test_every_key_of_a_plan_file_is_explained(pages: ModuleType) -> None:
    text, known = pages.plan_keys.page(), pages.plan_keys
    assert set(known.MEANINGS) == set(known.TABLES)
    for table in known.TABLES:
        assert list(known.MEANINGS[table]) == known.keys_of(table), table
        section = text.partition(f"## {table}\n")[2].partition("\n## ")[0]
        assert all(f"| `{key}` |" in section for key in known.keys_of(table))
    tables = {name.strip("[]").partition(".")[0] for name in known.TABLES}
    assert tables == set(Plan.__struct_fields__) - {"path"}


def test_bars_do_not_break_a_table(pages: ModuleType) -> None:
    for make in pages.PAGES.values():
        for line in make().splitlines():
            if line.startswith("| `"):
                bars = line.replace("\\|", "").count("|")
                assert bars in (3, 4, 7), line


def test_every_page_of_the_navigation_is_made(pages: ModuleType) -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    for name, make in pages.PAGES.items():
        assert f"reference/{name}.md" in nav
        assert make().startswith("# ")

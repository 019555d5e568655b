"""The generated reference names every command, option, doubt and key."""

from __future__ import annotations

import importlib.util
import typing
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from concbench import result
from concbench.analyse import matrix_model
from concbench.analyse.capacity import Capacity
from concbench.analyse.ratecapacity import RateCapacity
from concbench.analyse.severity import SEVERITY
from concbench.analyse.speculation import Speculation
from concbench.analyse.steptime import StepPrediction
from concbench.cli.main import COMMANDS
from concbench.domain import Estimate, Summary
from concbench.measure.throughput import Throughput
from concbench.plan.model import Plan
from concbench.store.schema import TABLES

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


def shown_structs() -> list[type[msgspec.Struct]]:
    more = [getattr(matrix_model, name) for name in ("Matrix", "AgainstRow")]
    more += [Capacity, RateCapacity, StepPrediction, Speculation]
    return sorted(
        set().union(*(reachable(one) for one in [result.Result, *more, Throughput])),
        key=lambda struct: struct.__name__,
    )


@pytest.mark.parametrize("struct", shown_structs(), ids=lambda struct: struct.__name__)
def test_every_key_of_the_result_has_meaning_unit_and_null_rule(
    pages: ModuleType, struct: type[msgspec.Struct]
) -> None:
    told = pages.KEYS[struct.__name__]
    assert set(told) == set(struct.__struct_fields__)
    for name, hint in typing.get_type_hints(struct).items():
        key = told[name]
        assert len(key.meaning) > 5, name
        assert bool(key.null) == (type(None) in parts(hint)[:1] + list(typing.get_args(hint))), (
            f"{struct.__name__}.{name}: null when {key.null!r}, but its type is {hint}"
        )
        if {int, float, Estimate, Summary} & {part for part in parts(hint) if part is not bool}:
            of_mapping = typing.get_origin(hint) is dict and not key.unit
            unit = pages.result_keys.unit_of(name, key)
            assert unit or of_mapping, f"{struct.__name__}.{name} is a number without a unit"


def test_a_unit_in_a_keys_name_is_the_one_that_is_told(pages: ModuleType) -> None:
    endings = pages.result_keys.UNITS
    for struct, keys in pages.KEYS.items():
        for name, key in keys.items():
            ending = max((e for e in endings if f"_{name}".endswith(e)), key=len, default=None)
            if ending is not None and key.unit:
                assert key.unit == endings[ending], f"{struct}.{name}"


def test_every_column_of_the_tables_is_explained() -> None:
    for table, columns in TABLES.items():
        for column in columns:
            where = f"{table}.{column.name}"
            assert len(column.meaning) > 5, where
            ending = column.name.rpartition("_")[2]
            unit = {"ns": "ns", "tok": "tokens", "rps": "requests per s"}.get(ending)
            assert unit is None or column.unit.startswith(unit), where


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
                assert bars in (3, 4, 6, 7), line


def test_every_page_of_the_navigation_is_made(pages: ModuleType) -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    for name, make in pages.PAGES.items():
        assert f"reference/{name}.md" in nav
        assert make().startswith("# ")

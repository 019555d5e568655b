"""A table of published figures (TOML): readings of several lanes, their corrections and updates.

```toml
schema = "concbench.table/1"
title = "fan-out on one GPU"

[lanes.gguf]                       # facts of a lane, by the names of a result's target
engine = "llamacpp"
quantization = "Q5_K_M"

[[readings]]
id = "first"
at = "2026-08-20"
metric = "output_tok_per_s"
levels = [1, 2, 4, 8]              # or contexts = [50, 5000], with concurrency = 1
retracted = "the recipe had lost two flags"
by = "second"
[readings.values]
gguf = [136.0, 184.8, 319.8, 429.2]
vllm = [56.9, 107.6, "capped at 2", [430.1, 436.2]]   # text: not measured; a list: repetitions
[readings.half_widths]             # where the source gives ±
gguf = [0.1, 0.1, 0.2, 0.2]
```
`supersedes` names an earlier reading that a new one replaces without its being wrong.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from concbench.domain import TargetFacts
from concbench.errors import PlanError
from concbench.store.importers import safe
from concbench.store.importers.model import ToldCell

SCHEMA = "concbench.table/1"
METRICS = frozenset(
    {
        "output_tok_per_s",
        "steady_output_tok_per_s",
        "server_output_tok_per_s",
        "decode_tok_per_s",
        "prefill_tok_per_s",
        "ttft_ms",
        "tpot_ms",
        "e2e_ms",
        "per_request_tok_per_s",
    }
)
_READING_KEYS = frozenset(
    {
        "id",
        "at",
        "metric",
        "levels",
        "contexts",
        "concurrency",
        "context_tok",
        "values",
        "half_widths",
        "retracted",
        "by",
        "supersedes",
        "why",
    }
)
_FACTS = frozenset(TargetFacts.__struct_fields__) - {"lane", "facts_from"}
_SHORT_TOK = 50


class Reading(Struct, kw_only=True):
    """One reading: cells of several lanes, told at one time.

    `retracted` is why it was wrong, `by` the reading that replaces it; `supersedes` and `why` are
    of an update that is none.
    """

    id: str
    at: str | None
    cells: list[ToldCell]
    retracted: str | None = None
    by: str | None = None
    supersedes: str | None = None
    why: str | None = None


class Table(Struct, kw_only=True):
    """A table file. Readings of one id are one reading with several metrics."""

    title: str
    facts: dict[str, TargetFacts]
    readings: list[Reading] = field(default_factory=list)


def read_table(path: Path) -> Table:
    """Return the table in a file. Raises PlanError (file, key, what was expected)."""
    try:
        value = tomllib.loads(safe.read_bytes(path).decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise PlanError(f"{path} is not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise PlanError(f"{path}: {safe.one_line(error)}") from None
    if value.get("schema") != SCHEMA:
        raise PlanError(f'{path}, schema: expected "{SCHEMA}", a table of published figures')
    lanes = safe.mapping(value.get("lanes"))
    table = Table(
        title=safe.text(value.get("title")) or path.stem,
        facts={name: _facts(path, name, safe.mapping(told)) for name, told in lanes.items()},
    )
    for number, told in enumerate(safe.sequence(value.get("readings"))):
        _add(table, _reading(path, number, safe.mapping(told), table.facts))
    if not table.readings:
        raise PlanError(f"{path}, readings: expected at least one [[readings]]")
    _check_links(path, table)
    return table


def _facts(path: Path, lane: str, told: Mapping[str, Any]) -> TargetFacts:
    unknown = sorted(told.keys() - _FACTS)
    if unknown:
        raise PlanError(f"{path}, lanes.{lane}.{unknown[0]}: no such fact of a lane")
    fields: dict[str, Any] = {"engine": "openai", "base_url": "imported", **told, "lane": lane}
    for key, value in fields.items():
        wanted = int if key in _INTEGERS else bool if key in _SWITCHES else str
        if type(value) is not wanted:
            raise PlanError(f"{path}, lanes.{lane}.{key}: expected {wanted.__name__}")
    return TargetFacts(**fields)


_INTEGERS = frozenset({"max_context_tok", "slots", "kv_capacity_tok", "memory_bytes"})
_SWITCHES = frozenset({"prefix_caching", "eager"})


def _reading(
    path: Path, number: int, told: Mapping[str, Any], facts: Mapping[str, TargetFacts]
) -> Reading:
    name = safe.text(told.get("id"))
    place = f"{path}, readings[{number}]"
    if name is None:
        raise PlanError(f"{place}.id: expected a name")
    unknown = sorted(told.keys() - _READING_KEYS)
    if unknown:
        raise PlanError(f"{place}.{unknown[0]}: no such key")
    metric = told.get("metric", "output_tok_per_s")
    if metric not in METRICS:
        raise PlanError(f"{place}.metric: expected one of {', '.join(sorted(METRICS))}")
    levels, contexts = _axis(place, told)
    cells: list[ToldCell] = []
    for lane, values in safe.mapping(told.get("values")).items():
        if lane not in facts:
            raise PlanError(f"{place}.values.{lane}: no such lane under [lanes]")
        halves = safe.sequence(safe.mapping(told.get("half_widths")).get(lane))
        if not isinstance(values, list) or len(values) != len(levels):
            raise PlanError(f"{place}.values.{lane}: expected a list of {len(levels)}")
        if halves and len(halves) != len(levels):
            raise PlanError(f"{place}.half_widths.{lane}: expected a list of {len(levels)}")
        cells += [
            _cell(f"{place}.values.{lane}", lane, name, str(metric), *row)
            for row in zip(levels, contexts, values, halves or [None] * len(levels), strict=True)
        ]
    if not cells:
        raise PlanError(f"{place}.values: expected a list of figures for each lane")
    return Reading(
        id=name,
        at=safe.text(told.get("at")),
        cells=cells,
        retracted=safe.text(told.get("retracted"), 1000),
        by=safe.text(told.get("by")),
        supersedes=safe.text(told.get("supersedes")),
        why=safe.text(told.get("why"), 1000),
    )


def _axis(place: str, told: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Return concurrency and context of each column."""
    levels, contexts = told.get("levels"), told.get("contexts")
    given = levels if contexts is None else contexts
    if (levels is None) == (contexts is None) or not isinstance(given, list) or not given:
        raise PlanError(f"{place}: expected either levels or contexts, a list of whole numbers")
    known = [safe.whole(value) for value in given]
    if None in known or 0 in known or len(set(known)) != len(known):
        raise PlanError(f"{place}: levels and contexts are whole numbers above 0, each once")
    numbers = [value for value in known if value is not None]
    if contexts is None:
        return numbers, [safe.whole(told.get("context_tok")) or _SHORT_TOK] * len(numbers)
    return [safe.whole(told.get("concurrency")) or 1] * len(numbers), numbers


def _cell(
    place: str, lane: str, reading: str, metric: str, level: int, context: int, value: object,
    half: object,
) -> ToldCell:  # fmt: skip
    told: dict[str, Any] = {}
    if isinstance(value, list):
        told = safe.figure(values=value, half_width=half)
        if len(told.get("values", ())) != len(value) or not value:
            raise PlanError(f"{place}: repetitions are numbers, at least one")
    elif not isinstance(value, str):
        told = safe.figure(mean=safe.positive(value), half_width=half)
        if "mean" not in told:
            raise PlanError(f"{place}: expected a number above 0, a list, or why there is none")
    count = len(told.get("values", (0,)))
    return ToldCell(
        cell=f"{reading}:{lane}.{context}.c{level}",
        lane=lane,
        concurrency=level,
        context_tok=context,
        context_label="short" if context <= _SHORT_TOK else str(context),
        sent=count,
        ok=count,
        figures={metric: told} if told else {},
        measured=bool(told),
        detail=value[:200] if isinstance(value, str) else None,
    )


def _add(table: Table, reading: Reading) -> None:
    """Add a reading; figures of another metric under a known id join its cells."""
    known = next((one for one in table.readings if one.id == reading.id), None)
    if known is None:
        table.readings.append(reading)
        return
    cells = {cell.cell: cell for cell in known.cells}
    for cell in reading.cells:
        if cell.cell in cells:
            cells[cell.cell].figures.update(cell.figures)
            cells[cell.cell].measured |= cell.measured
        else:
            known.cells.append(cell)


def _check_links(path: Path, table: Table) -> None:
    names: Sequence[str] = [one.id for one in table.readings]
    for one in table.readings:
        for key, target in (("by", one.by), ("supersedes", one.supersedes)):
            if target is not None and (target not in names or target == one.id):
                raise PlanError(f"{path}, reading {one.id}.{key}: no other reading {target!r}")

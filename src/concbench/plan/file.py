"""A plan file becomes a `Plan`, or one line: what is wrong, where, and what was expected."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from concbench.errors import PlanError
from concbench.plan.axes import axis_faults
from concbench.plan.content import KINDS
from concbench.plan.model import (
    ENGINES,
    ContainerPlan,
    LanePlan,
    LinkPlan,
    Plan,
    StudyPlan,
    SweepPlan,
    WorkloadPlan,
)
from concbench.plan.toml_lines import Path as KeyPath
from concbench.plan.toml_lines import key_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

S = TypeVar("S", bound=msgspec.Struct)

_TABLES = ("study", "lanes", "workload", "sweep", "links")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_AT_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")
_ENV_TYPES = (str, int, float)
_COMMAND = 'a command as a list of words, as in ["vllm", "serve"]'
_COMMANDS = 'commands as lists of words, as in [["ip", "link", "show"]]'
_EXPECTED = {
    "runtime": '"docker" or "podman"',
    "content": f"one of {', '.join(KINDS)}",
    "endpoint": '"chat" or "completions"',
    "output_tokens": 'a whole number from 1 on or "auto"',
    "contexts": 'a list of "short" and whole numbers of tokens',
    "concurrency": '"auto" or a list of whole numbers from 1 to 65536',
    "command": _COMMAND,
    "stop": _COMMAND,
    "log": _COMMAND,
    "before": _COMMANDS,
    "after": _COMMANDS,
    "vary": "a table of flags, each with a list of values",
    "env": "a table of strings and numbers",
}
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_STARTED = ("llamacpp", "vllm", "sglang")


class _Source:
    """The file's name and the lines of its keys: what an error needs."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._lines = key_lines(text)

    def error(self, path: KeyPath, message: str) -> PlanError:
        """Return the error at a key; the nearest enclosing key that has a line gives it."""
        line = 1
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                line = self._lines[path[:length]]
                break
        return PlanError(_one_line(f"{self.name}:{line}: {_dotted(path)}: {message}"))


def load_plan(path: Path) -> Plan:
    """Read a plan file. Raises PlanError: file, line, key and what was expected."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanError(_one_line(f"{path}: cannot read the plan: {reason}")) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PlanError(f"{path}:{line}: not UTF-8; save the plan as UTF-8") from error
    return parse_plan(text, str(path))


def parse_plan(text: str, name: str = "plan.toml") -> Plan:
    """Return the plan that a TOML text describes; `name` stands in messages. Raises PlanError."""
    data = _parsed(text, name)
    source = _Source(name, text)
    if not data:
        raise PlanError(f"{name}:1: the plan is empty; expected at least one table [lanes.NAME]")
    _refuse_unknown(data, _TABLES, source, ())
    lanes = {
        key: _lane(key, table, source)
        for key, table in _named_tables(data, "lanes", source).items()
    }
    if not lanes:
        raise source.error(("lanes",), "no lane; expected at least one table [lanes.NAME]")
    links = {
        key: _converted({**table, "name": key}, LinkPlan, source, ("links", key))
        for key, table in _named_tables(data, "links", source).items()
    }
    swept = _table(data, "sweep", source)
    plan = Plan(
        path=name,
        study=_converted(_table(data, "study", source), StudyPlan, source, ("study",)),
        lanes=lanes,
        workload=_converted(_table(data, "workload", source), WorkloadPlan, source, ("workload",)),
        sweep=_converted(swept, SweepPlan, source, ("sweep",)),
        links=links,
    )
    _check_references(plan, source)
    _check_values(plan, source)
    _check_idle(plan, source, swept, _table(data, "workload", source))
    if "contexts" not in swept and plan.workload.prompt_tokens is not None:
        alone = msgspec.structs.replace(plan.sweep, contexts=[plan.workload.prompt_tokens])
        return msgspec.structs.replace(plan, sweep=alone)
    return plan


def _parsed(text: str, name: str) -> dict[str, Any]:
    """Return the TOML document. Raises PlanError with the line of a syntax error."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT_LINE.search(message)
        line = at[1] if at and at[1] else text.count("\n") + 1
        reason = _AT_LINE.sub("", message)
        raise PlanError(_one_line(f"{name}:{line}: not valid TOML: {reason}")) from error
    except (ValueError, RecursionError) as error:
        raise PlanError(_one_line(f"{name}:1: not valid TOML: {error}")) from error


def _table(data: Mapping[str, Any], key: str, source: _Source) -> dict[str, Any]:
    """Return a table of the document, empty where there is none. Raises PlanError."""
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise source.error((key,), f"expected a table [{key}], got {_kind(table)}")
    return table


def _named_tables(data: Mapping[str, Any], key: str, source: _Source) -> dict[str, dict[str, Any]]:
    """Return `[key.NAME]` by name. Raises PlanError for a name that is not fit for a file's."""
    tables = _table(data, key, source)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise source.error((key, name), f"expected a table [{key}.{name}], got {_kind(table)}")
        if not _NAME.fullmatch(name):
            raise source.error(
                (key, name), "expected a name of letters, digits, dots, dashes and underscores"
            )
        if "name" in table:
            raise source.error(
                (key, name, "name"), f"unknown key; the name is that of the table, {name}"
            )
    return tables


def _lane(name: str, table: dict[str, Any], source: _Source) -> LanePlan:
    """Return one lane. Raises PlanError unless there is exactly one way to get at it."""
    path = ("lanes", name)
    container = table.get("container")
    if isinstance(container, dict):
        _converted(container, ContainerPlan, source, (*path, "container"))
    lane = _converted({**table, "name": name}, LanePlan, source, path)
    ways = [key for key in ("command", "url", "container") if getattr(lane, key) is not None]
    if lane.flags and ways:
        ways.insert(0, "flags")
    if len(ways) > 1:
        raise source.error(
            (*path, ways[1]),
            f"a lane has one of model with flags, command, url or container, not {_and(ways)}",
        )
    if not ways and lane.model is None:
        raise source.error(path, "expected one of model (with flags), command, url or container")
    if lane.engine is not None and lane.engine not in ENGINES:
        raise source.error(
            (*path, "engine"), f'unknown engine "{lane.engine}"{_nearest(lane.engine, ENGINES)}'
        )
    if not ways and lane.engine not in _STARTED:
        raise source.error(
            (*path, "engine" if lane.engine else "model"),
            f"a lane with model and flags needs engine = one of {', '.join(_STARTED)}",
        )
    if lane.url is not None and not re.match(r"https?://[^/\s]+", lane.url):
        raise source.error((*path, "url"), "expected http://HOST:PORT or https://HOST")
    return lane


def _converted(table: dict[str, Any], kind: type[S], source: _Source, path: KeyPath) -> S:
    """Return the table as a Struct. Raises PlanError for unknown keys and wrong types."""
    fields = [field.encode_name for field in msgspec.structs.fields(kind)]
    _refuse_unknown(table, fields, source, path)
    for key, value in table.items():
        _check_plain(value, source, (*path, key))
    try:
        return msgspec.convert(table, kind)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        message, _, where = str(error).partition(" - at `")
        inner = _inner_path(where.removesuffix("`"), table)
        raise source.error((*path, *inner), _expectation(message, inner, table)) from error


def _inner_path(where: str, table: dict[str, Any]) -> KeyPath:
    """Return msgspec's `$.a[0]` as a path; where it writes `[...]`, any key, the key is found."""
    path: list[str | int] = []
    for name, index in re.findall(r"\.([\w-]+)|\[(\d+|\.\.\.)\]", where):
        if index == "...":
            break
        path.append(name or int(index))
    if path == ["env"] and isinstance(table["env"], dict):
        path += [key for key, value in table["env"].items() if type(value) not in _ENV_TYPES][:1]
    if path == ["vary"] and isinstance(table["vary"], dict):
        for lane, flags in table["vary"].items():
            if not isinstance(flags, dict):
                return ("vary", lane)
            wrong = [flag for flag, values in flags.items() if not isinstance(values, list)]
            if wrong:
                return ("vary", lane, wrong[0])
    return tuple(path)


def _expectation(message: str, inner: KeyPath, table: dict[str, Any]) -> str:
    """Return msgspec's message in the words of the format, with the value that it is about."""
    missing = re.fullmatch(r"Object missing required field `(\w+)`", message)
    if missing:
        return f"the key {missing[1]} is missing"
    value: Any = table
    for part in inner:
        value = value[part]
    got = _kind(value)
    if isinstance(value, str):
        got = f'"{value[:40]}"'
    elif isinstance(value, int | float):
        got = str(value).lower()[:40]
    expected = _EXPECTED.get(str(inner[0]) if inner else "")
    if expected is None:
        plain = message.removeprefix("Expected ").partition(", got")[0]
        plain = plain.replace("`", "").replace(" | null", "")
        expected = re.sub(r"\w+", lambda word: _TYPE_NAMES.get(word[0], word[0]), plain)
    return f"expected {expected.replace(' | ', ' or ')}, got {got}"


def _check_plain(value: object, source: _Source, path: KeyPath) -> None:
    """Raise PlanError for values that have no place in a flag or a JSON body: dates, NaN, ∞."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_plain(inner, source, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_plain(inner, source, (*path, index))
    elif isinstance(value, float) and not math.isfinite(value):
        raise source.error(path, f"expected a finite number, got {value}")
    elif not isinstance(value, str | int | float):
        raise source.error(path, f"expected a string, number or boolean, got {_kind(value)}")


def _refuse_unknown(
    table: Mapping[str, Any], known: Iterable[str], source: _Source, path: KeyPath
) -> None:
    """Raise PlanError for a key that is not known, with the nearest that is."""
    names = [name for name in known if name != "name" or path == ("study",)]
    for key in table:
        if key not in names and not (key == "name" and path[:1] in (("lanes",), ("links",))):
            raise source.error((*path, key), f"unknown key{_nearest(key, names)}")


def _check_references(plan: Plan, source: _Source) -> None:
    """Raise PlanError where the sweep names a lane or a link that is not there."""
    named: list[tuple[KeyPath, str, Iterable[str]]] = [
        (("sweep", "lanes", i), name, plan.lanes) for i, name in enumerate(plan.sweep.lanes)
    ]
    named += [(("sweep", "links", i), name, plan.links) for i, name in enumerate(plan.sweep.links)]
    named += [(("sweep", "vary", name), name, plan.lanes) for name in plan.sweep.vary]
    for path, name, known in named:
        what = "link" if path[1] == "links" else "lane"
        if name not in known:
            raise source.error(path, f'there is no {what} "{name}"{_nearest(name, known)}')
    for key, values in (("lanes", plan.sweep.lanes), ("links", plan.sweep.links)):
        for index, name in enumerate(values):
            if name in values[:index]:
                raise source.error(("sweep", key, index), f'"{name}" is listed twice; keep one')


def _check_values(plan: Plan, source: _Source) -> None:
    """Raise PlanError for values that are well typed and make no sense together."""
    for path, why in axis_faults(plan):
        raise source.error(path, why)
    for lane, flags in plan.sweep.vary.items():
        path = ("sweep", "vary", lane)
        if plan.lanes[lane].way == "url":
            raise source.error(path, "a lane with url runs already; its flags cannot be varied")
        for flag, values in flags.items():
            if not values:
                raise source.error((*path, flag), "expected at least one value")
            for index, value in enumerate(values):
                if isinstance(value, list | dict):
                    raise source.error(
                        (*path, flag, index), f"expected a scalar, got {_kind(value)}"
                    )
    most = plan.study.rounds_max
    if most is not None and most < plan.study.rounds:
        raise source.error(
            ("study", "rounds_max"), f"expected at least rounds ({plan.study.rounds}), got {most}"
        )
    if plan.workload.prompts is not None and plan.workload.same_prompt:
        raise source.error(
            ("workload", "same_prompt"), "same_prompt and prompts exclude each other; keep one"
        )


def _check_idle(
    plan: Plan, source: _Source, swept: Mapping[str, Any], workload: Mapping[str, Any]
) -> None:
    """Raise PlanError for keys that would do nothing beside the others."""
    if plan.sweep.concurrency != "auto" and "oversubscribe" in swept:
        raise source.error(
            ("sweep", "oversubscribe"),
            'only concurrency = "auto" goes beyond the KV pool by it; leave it out beside a list',
        )
    for lane in plan.sweep.vary:
        if plan.sweep.lanes and lane not in plan.sweep.lanes:
            raise source.error(
                ("sweep", "vary", lane),
                f'sweep.lanes leaves out "{lane}"; add it there, or drop this',
            )
    if plan.workload.prompts is None:
        return
    if "content" in workload:
        raise source.error(
            ("workload", "content"), "prompts from a file have their own content; keep one"
        )
    if "contexts" in swept:
        raise source.error(
            ("sweep", "contexts"), "prompts from a file have lengths of their own; keep one"
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known name, else all of them."""
    names = list(known)
    near = difflib.get_close_matches(name.lower()[:200], names, n=1, cutoff=0.5)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; expected one of {', '.join(names)}" if names else "; none is defined"


def _kind(value: object) -> str:
    """Return what TOML calls a value of this kind."""
    kinds: dict[type, str] = {dict: "a table", list: "an array", str: "a string", bool: "a boolean"}
    kinds |= {int: "an integer", float: "a float"}
    return kinds.get(type(value), "a date or time")


def _dotted(path: KeyPath) -> str:
    """Return a path as it is written in TOML, array positions in brackets."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", part)
            shown += ("." if shown else "") + (part if bare else f'"{part}"')
    return shown


def _and(words: list[str]) -> str:
    """Return `a, b and c`."""
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _one_line(message: str) -> str:
    """Return the message with control characters and line ends shown escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)

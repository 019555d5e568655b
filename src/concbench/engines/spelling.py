"""How engines spell their command lines: flags to words, and words back to flags.

A `Dialect` is what differs between engines. Names are canonical: long, with hyphens, without
leading dashes (`ctx-size`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from concbench.engines.reading import json_value

_FLAG = re.compile(r"--?[A-Za-z]")
_IMAGE = re.compile(r"(?!/)[\w.-]+(?::\d+)?(?:/[\w.-]+)+(?:[:@][\w.:-]+)?")
_SHELLS = ("sh", "bash", "zsh", "dash")
_RUNTIMES = ("docker", "podman", "nerdctl")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine's spelling.

    `aliases` maps other names to the canonical one (both without dashes). `short` holds the names
    that are written with one dash. `switches` take no value. `many` take several words after one
    flag, `repeated` take the flag once a value; other lists are joined with commas. `negatable`
    says which switches have a `--no-` form: None means all but `unnegatable`.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    short: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    many: frozenset[str] = frozenset()
    repeated: frozenset[str] = frozenset()
    negatable: frozenset[str] | None = frozenset()
    unnegatable: frozenset[str] = frozenset()
    separator: str = "-"


def spell(flags: Mapping[str, Any], dialect: Dialect) -> list[str]:
    """Return the words of a command line for these flags.

    True is the bare flag, False its `--no-` form where the engine has one and nothing otherwise.
    """
    words: list[str] = []
    for name, value in flags.items():
        flag = _flag_word(name, dialect)
        if value is True:
            words.append(flag)
        elif value is False:
            words += _negation(name, dialect)
        elif isinstance(value, (list, tuple)):
            words += _spell_list(flag, canonical(name, dialect), value, dialect)
        else:
            words += [flag, _value_word(value)]
    return words


def canonical(name: str, dialect: Dialect) -> str:
    """Return a flag's canonical name; what follows a dot (vLLM's JSON keys) stays as it is."""
    head, dot, tail = name.lstrip("-").partition(".")
    head = head.replace("_", "-")
    return dialect.aliases.get(head, head) + dot + tail


def _flag_word(name: str, dialect: Dialect) -> str:
    if name.startswith("-"):
        return name
    head, dot, tail = name.partition(".")
    if len(head) == 1 or head in dialect.short:
        return f"-{name}"
    old, new = ("_", "-") if dialect.separator == "-" else ("-", "_")
    return f"--{head.replace(old, new)}{dot}{tail}"


def _negation(name: str, dialect: Dialect) -> list[str]:
    long = canonical(name, dialect)
    if dialect.negatable is None:
        return [] if long in dialect.unnegatable else [f"--no-{long}"]
    return [f"--no-{long}"] if long in dialect.negatable else []


def _spell_list(flag: str, name: str, values: Sequence[Any], dialect: Dialect) -> list[str]:
    words = [_value_word(value) for value in values]
    if name in dialect.many:
        return [flag, *words]
    if name in dialect.repeated:
        return [part for word in words for part in (flag, word)]
    return [flag, ",".join(words)]


def _value_word(value: Any) -> str:  # noqa: ANN401 - flags are of many types
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def read_words(argv: Sequence[str] | None, dialect: Dialect) -> dict[str, Any]:
    """Return the flags of a command line by canonical name; the last mention of a name wins.

    Values are texts, True for a bare flag, False for its `--no-` form, a list for flags that take
    several words, a dict for JSON objects and for dotted flags (`--speculative-config.method`).
    """
    flags: dict[str, Any] = {}
    words = command_words(argv or ())
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _FLAG.match(word):
            continue
        name, equals, given = word.partition("=")
        name = canonical(name, dialect)
        if equals:
            _store(flags, name, given)
            continue
        taken = _values_after(words, index, name, dialect)
        index += len(taken)
        if name in dialect.many and len(taken) > 1:
            flags[name] = taken
        else:
            _store(flags, name, taken[0] if taken else True)
    return flags


def _values_after(words: Sequence[str], start: int, name: str, dialect: Dialect) -> list[str]:
    if name in dialect.switches or name.startswith("no-"):
        return []
    stop = start
    limit = len(words) if name in dialect.many else min(start + 1, len(words))
    while stop < limit and not _FLAG.match(words[stop]):
        stop += 1
    return list(words[start:stop])


def _store(flags: dict[str, Any], name: str, value: str | Literal[True]) -> None:
    if value is True and name.startswith("no-"):
        flags[name[3:]] = False
        return
    head, dot, tail = name.partition(".")
    parsed: Any = value
    if isinstance(value, str) and value[:1] in ("{", "["):
        loaded = json_value(value)
        parsed = value if loaded is None else loaded
    if dot:
        nested = flags[head] if isinstance(flags.get(head), dict) else {}
        flags[head] = {**nested, tail: parsed}
    else:
        flags[name] = parsed


def command_words(argv: Sequence[str]) -> list[str]:
    """Return the engine's own words: without a shell (`bash -c …`) or a container around them."""
    words = list(argv)
    if len(words) > 2 and _base(words[0]) in _SHELLS and words[1] in ("-c", "-lc"):
        try:
            words = shlex.split(words[2])
        except ValueError:
            words = words[2].split()
    if words and _base(words[0]) in _RUNTIMES and "run" in words:
        words = _after_image(words)
    return words


def _after_image(words: list[str]) -> list[str]:
    for index, word in enumerate(words):
        if index > words.index("run") and _IMAGE.fullmatch(word):
            return words[index + 1 :]
    return words


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def positional(argv: Sequence[str] | None, after: str) -> str | None:
    """Return the first word after the word `after`, unless it is a flag."""
    words = command_words(argv or ())
    if after not in words:
        return None
    following = words[words.index(after) + 1 :]
    return following[0] if following and not _FLAG.match(following[0]) else None

"""The command lines that measure the same again, made from what the result says of itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from concbench.report.inert import inert, without_credentials
from concbench.result import CellResult, Result, WorkloadResult

COMMAND_LIMIT = 4_000
_OWN_NAME = "concbench"


def command_lines(result: Result) -> tuple[str, ...]:
    """Return the command that was run where it started its servers or chose its levels itself.

    Else one line a target and arrival mode, with what was found out about them.
    """
    if result.command == "try":
        return (f"{_OWN_NAME} try",)
    ran = (result.payload or {}).get("ran")
    if ran:
        return tuple(line for each in ran for line in _ran(each))
    if result.workload is None or not result.cells:
        return ()
    groups: dict[tuple[str, int], list[CellResult]] = {}
    for cell in result.cells:
        groups.setdefault((cell.lane, cell.context_tok), []).append(cell)
    lines: list[str] = []
    for (lane, context_tok), cells in groups.items():
        prompt_tok = result.workload.prompt_tokens if len(groups) == 1 else context_tok
        for head in _heads(cells, result.workload):
            words = [_OWN_NAME, head[0], _target(result, lane), *head[1:]]
            words += _options(result, lane, cells, prompt_tok)
            words += _asked(result.payload)
            lines.append(_line(words))
    return tuple(dict.fromkeys(lines))


def _ran(entry: Mapping[str, Any]) -> list[str]:
    """Return the lines of a command as it was given, and where its plan is kept."""
    words = [str(word) for word in entry["argv"]]
    if not any(word.partition("=")[0] == "--seed" for word in words):
        words += ["--seed", str(entry["seed"])]
    plan = entry.get("plan")
    kept = [f"# the plan as it was run: {inert(plan, COMMAND_LIMIT)}"] if plan else []
    return [*kept, _line([_OWN_NAME, *words])]


def _line(words: Sequence[str]) -> str:
    """Return words as one line that a shell reads back as they are."""
    return inert(" ".join(map(quoted, words)), COMMAND_LIMIT)


def quoted(word: str) -> str:
    """Return a word as a shell reads it; what must not be seen raw is escaped as bash does."""
    plain = shlex.quote(word)
    if inert(f".{plain}.", len(plain) + 2) == f".{plain}.":
        return plain
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    """Return one character inside `$'…'`."""
    code = ord(char)
    if char in "\\'":
        return f"\\{char}"
    if code < 0x80:
        return char if char.isprintable() and char != " " else f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte of the command line that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if inert(f".{char}.") == f".{char}.":
        return char
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _target(result: Result, lane: str) -> str:
    """Return what stands for the lane on a command line: its address, or `embedded`."""
    facts = result.targets.get(lane)
    if facts is None or lane == "embedded":
        return lane
    return without_credentials(facts.base_url)


def _heads(cells: Sequence[CellResult], workload: WorkloadResult) -> list[list[str]]:
    """Return command and level options for each run that the cells need."""
    if workload.arrival == "burst":
        levels = sorted({cell.concurrency for cell in cells})
        return [["burst", "--levels", ",".join(map(str, levels))]]
    if workload.arrival == "closed":
        return [["sustain", "-c", str(level)] for level in sorted({c.concurrency for c in cells})]
    if workload.arrival == "trace":
        return [["rate"]]
    rates = sorted({cell.rate_rps for cell in cells if cell.rate_rps is not None})
    poisson = ["--poisson"] if workload.arrival == "poisson" else []
    return [["rate", "--rps", f"{rate:g}", *poisson] for rate in rates]


def _options(result: Result, lane: str, cells: Sequence[CellResult], prompt_tok: int) -> list[str]:
    """Return the options that fix the workload."""
    workload = result.workload
    if workload is None:
        return []
    facts = result.targets.get(lane)
    model = ["--model", facts.model] if facts and facts.model and lane != "embedded" else []
    words = [
        *model,
        *("--prompt-tokens", str(prompt_tok)),
        *("--output-tokens", str(workload.output_tokens)),
        *("--content", workload.content),
        *("--seed", str(workload.seed)),
        *("--temperature", f"{workload.temperature:g}"),
        *("--endpoint", workload.endpoint),
        *("--rounds", str(max(cell.rounds for cell in cells))),
    ]
    if not workload.stream:
        words.append("--no-stream")
    if not workload.distinct_prompts:
        words.append("--same-prompt")
    if workload.extra_body:
        words += ["--extra-body", _compact(workload.extra_body)]
    return words


_ASKED: Final[dict[str, Callable[[Any], str]]] = {
    "until": lambda share: f"{100 * share:g}%",
    "min_s": lambda seconds: f"{seconds:g}",
    "max_s": lambda seconds: f"{seconds:g}",
    "idle_s": lambda seconds: f"{seconds:g}",
    "duration": lambda seconds: f"{seconds:g}",
    "drain_s": lambda seconds: f"{seconds:g}",
    "slo": str,
    "trace": str,
    "warmup": str,
    "timeout_s": lambda seconds: f"{seconds:g}",
    "inactivity_s": lambda seconds: f"{seconds:g}",
}
"""How an option that a study was given is written again; what else was given is a switch."""


def _asked(payload: Mapping[str, Any] | None) -> list[str]:
    """Return the options that a study's commands were given beyond its workload."""
    asked = (payload or {}).get("asked")
    words: list[str] = []
    for name, value in (asked if isinstance(asked, Mapping) else {}).items():
        option = f"--{name.replace('_', '-')}"
        if name in _ASKED:
            words += [option, _ASKED[name](value)]
        elif value is True:
            words.append(option)
    return words


def _compact(value: object) -> str:
    """Return JSON in one line."""
    return msgspec.json.encode(value).decode()

"""Answers that go wrong on purpose.

An answer is a row of `Part`s. A fault is a factory `(scene, argument) -> transform` where a
transform takes the parts of one emission and returns those that are really to be written; it may
hold some back, change, add or drop them. Faults compose in the order in which they are named,
within four stages:

- `reply`: the request is not generated at all; the factory returns the whole answer.
- `event`: parts still carry text, reason and channel; nothing is rendered yet.
- `text`:  parts carry rendered SSE events.
- `wire`:  parts carry what goes to the socket, after the HTTP framing.

Named as `name`, `name=argument`, joined by `;`. On the command line `@every=K` restricts a fault
to each K-th request, `@first=N` to the first N and `@after=N` to those after the first N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from concbench.errors import UsageError
from concbench.reference import fault_events as said
from concbench.reference import fault_hostile as hostile
from concbench.reference import fault_wire as sent
from concbench.reference.parts import Part, Scene, Transform, frame_part, render_part

Stage = Literal["reply", "event", "text", "wire"]

# Any: reply factories return parts, the others a transform.
FAULTS: dict[str, tuple[Stage, Any]] = {
    "status": ("reply", sent.status),
    "html": ("reply", sent.html),
    "refuse": ("reply", sent.refuse),
    "garbage": ("reply", sent.garbage),
    "no-bytes": ("reply", sent.no_bytes),
    "endless-head": ("reply", hostile.endless_head),
    "no-done": ("event", said.no_done),
    "no-finish": ("event", said.no_finish),
    "no-usage": ("event", said.no_usage),
    "usage-twice": ("event", said.usage_twice),
    "usage-cumulative": ("event", said.usage_cumulative),
    "usage-late": ("event", said.usage_late),
    "usage-wrong": ("event", said.usage_wrong),
    "opener-early": ("event", said.opener_early),
    "no-opener": ("event", said.no_opener),
    "null-content": ("event", said.null_content),
    "reasoning": ("event", said.reasoning),
    "tool-calls": ("event", said.tool_calls),
    "first-chunk": ("event", said.first_chunk),
    "one-chunk": ("event", said.one_chunk),
    "error": ("event", said.error_at),
    "truncate": ("event", said.truncate),
    "reset": ("event", said.reset),
    "half-close": ("event", said.half_close),
    "clean-end": ("event", said.clean_end),
    "hang": ("event", said.hang),
    "pause": ("event", said.pause),
    "empty": ("event", said.empty),
    "no-tokens": ("event", said.no_tokens),
    "empty-text": ("event", said.empty_text),
    "endless": ("event", said.endless),
    "over-cap": ("event", said.over_cap),
    "after-end": ("event", said.after_end),
    "bad-utf8": ("event", said.bad_utf8),
    "lone-surrogate": ("event", said.lone_surrogate),
    "spaces": ("event", said.spaces),
    "long-line": ("event", said.long_line),
    "garble": ("event", said.garble),
    "odd-usage": ("event", hostile.odd_usage),
    "deep-json": ("event", hostile.deep_json),
    "crlf": ("text", sent.crlf),
    "cr": ("text", sent.lone_cr),
    "no-space": ("text", sent.no_space),
    "more-space": ("text", sent.more_space),
    "named-events": ("text", sent.named_events),
    "bom": ("text", sent.bom),
    "pings": ("text", sent.pings),
    "empty-pings": ("text", sent.empty_pings),
    "wrong-json": ("text", sent.wrong_json),
    "merge": ("text", sent.merge_events),
    "gzip": ("text", sent.gzip),
    "split": ("wire", sent.split),
    "slow-head": ("wire", sent.slow_head),
    "delay": ("wire", sent.delay),
    "http10": ("wire", sent.http10),
    "wrong-length": ("wire", sent.wrong_length),
    "huge-headers": ("wire", sent.huge_headers),
    "interim": ("wire", sent.interim),
    "two-lengths": ("wire", hostile.two_lengths),
    "encoded": ("wire", hostile.encoded),
    "drip": ("wire", hostile.drip),
}
"""Every fault by name, with the stage that it acts in."""


@dataclass(frozen=True, slots=True)
class Named:
    """One fault as asked for: its name, its argument, and which requests it touches."""

    name: str
    argument: str = ""
    every: int = 1
    first: int = 0
    after: int = 0

    def applies(self, request_id: int) -> bool:
        """Whether the request of that number (from 1) gets this fault."""
        begun = request_id > self.after and request_id % self.every == 0
        return begun and (not self.first or request_id <= self.first)


def parse_faults(text: str) -> list[Named]:
    """Read `name[=argument][@every=K][@first=N][@after=N]`, joined by `;`.

    Raises UsageError for an unknown name or a wrong number.
    """
    out = []
    for item in filter(None, (part.strip() for part in text.split(";"))):
        body, *limits = item.split("@")
        name, _, argument = body.partition("=")
        if name not in FAULTS:
            raise UsageError(f"unknown fault {name!r}: one of {', '.join(sorted(FAULTS))}")
        numbers = {"every": 1, "first": 0, "after": 0}
        for limit in limits:
            key, _, value = limit.partition("=")
            if key not in numbers or not value.isdigit() or int(value) < 1:
                raise UsageError(f"fault {item!r}: only @every=K, @first=N, @after=N, all from 1")
            numbers[key] = int(value)
        out.append(Named(name, argument, **numbers))
    return out


class Script:
    """The faults of one answer, in stages. `reply` is the whole answer where one replaces it."""

    def __init__(self, scene: Scene, faults: list[Named]) -> None:
        self.scene = scene
        self.reply: list[Part] | None = None
        self._stages: dict[str, list[Transform]] = {"event": [], "text": [], "wire": []}
        for fault in faults:
            stage, factory = FAULTS[fault.name]
            if stage == "reply":
                self.reply = factory(scene, fault.argument)
            else:
                self._stages[stage].append(factory(scene, fault.argument))

    def apply(self, parts: list[Part]) -> list[Part]:
        """Return what is to be written for one emission."""
        for transform in self._stages["event"]:
            parts = transform(parts)
        for part in parts:
            render_part(self.scene, part)
        for transform in self._stages["text"]:
            parts = transform(parts)
        for part in parts:
            frame_part(self.scene, part)
        return self.to_wire([part for part in parts if part.data or part.after])

    def to_wire(self, parts: list[Part]) -> list[Part]:
        """Return framed parts as the faults on the wire leave them."""
        for transform in self._stages["wire"]:
            parts = transform(parts)
        return parts

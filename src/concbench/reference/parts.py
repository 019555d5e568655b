"""The pieces of an answer, and how they become bytes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from concbench.errors import UsageError
from concbench.reference.http import LAST_CHUNK, chunk
from concbench.reference.render import DONE, Render, Usage

PartKind = Literal[
    "head", "opener", "token", "finish", "usage", "done", "event", "end", "body", "raw"
]
After = Literal["reset", "close", "half_close"]


@dataclass(slots=True)
class Part:
    """One write of an answer. `data` None means: to be rendered from the other fields.

    `tokens` counts what the part carries, `total_tok` the tokens up to and including it, `last`
    marks the answer's last tokens.
    `wait_ns` is waited before the write, counted from the write before; `after` ends the
    connection once it is written; `framed` says that it needs no (more) chunk framing.
    """

    kind: PartKind
    data: bytes | None = None
    text: bytes = b""
    reason: str | None = None
    channel: str = "content"
    tokens: int = 0
    total_tok: int = 0
    last: bool = False
    wait_ns: int = 0
    after: After | None = None
    framed: bool = False


Transform = Callable[[list[Part]], list[Part]]


@dataclass(slots=True)
class Scene:
    """What a fault may know of its answer, and the few things that it may change.

    `framing` is how a streamed body ends: `chunked`, by `close`, or by a (wrong) `length`.
    `output_tok` may be changed before the request is queued.
    """

    render: Render
    streamed: bool
    prompt_tok: int
    output_tok: int
    word: Callable[[int], bytes]
    framing: Literal["chunked", "close", "length"] = "chunked"


def render_part(scene: Scene, part: Part) -> None:
    """Give the part its bytes, where it has none yet."""
    if part.data is not None:
        return
    if part.kind == "token":
        usage = Usage(scene.prompt_tok, part.total_tok)
        part.data = scene.render.token(part.text, part.reason, part.channel, usage)
    elif part.kind == "done":
        part.data = DONE
    else:
        part.data = b""


def frame_part(scene: Scene, part: Part) -> None:
    """Put the HTTP framing round a part of a streamed body."""
    if part.framed:
        return
    part.framed = True
    if part.kind in ("head", "body", "raw"):
        return
    if part.kind == "end":
        part.data = LAST_CHUNK if scene.framing == "chunked" else b""
        if scene.framing != "chunked":
            part.after = part.after or "close"
    elif part.data and scene.framing == "chunked":
        part.data = chunk(part.data)


def number(argument: str, default: int, *, least: int = 0) -> int:
    """Return a fault's numeric argument. Raises UsageError when it is none."""
    if not argument:
        return default
    if not argument.isdigit() or int(argument) < least:
        raise UsageError(f"a fault's argument must be a number from {least}, not {argument!r}")
    return int(argument)

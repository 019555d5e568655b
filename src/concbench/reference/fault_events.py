"""Faults in what is said: tokens, reasons, usage, and the SSE lines that carry them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from concbench.reference.parts import Part, Scene, Transform, number
from concbench.reference.render import Usage


def _map_tokens(change: Transform) -> Transform:
    """Lift a change of single token parts (each given as a list of one) to whole emissions."""

    def transform(parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            out += change([part]) if part.kind == "token" else [part]
        return out

    return transform


def _drop(*kinds: str) -> Transform:
    return lambda parts: [part for part in parts if part.kind not in kinds]


def no_done(_scene: Scene, _argument: str) -> Transform:
    """No `[DONE]` at the end."""
    return _drop("done")


def no_finish(_scene: Scene, _argument: str) -> Transform:
    """No finish reason anywhere."""

    def transform(parts: list[Part]) -> list[Part]:
        return [replace(part, reason=None) for part in parts if part.kind != "finish"]

    return transform


def no_usage(scene: Scene, _argument: str) -> Transform:
    """No usage at all, though asked for."""
    scene.render.continuous_usage = False
    return _drop("usage")


def usage_twice(_scene: Scene, _argument: str) -> Transform:
    """The usage event comes twice."""

    def transform(parts: list[Part]) -> list[Part]:
        return [
            p
            for part in parts
            for p in ((part, replace(part)) if part.kind == "usage" else (part,))
        ]

    return transform


def usage_cumulative(scene: Scene, _argument: str) -> Transform:
    """After each token event comes a usage event with the counts so far."""

    def change(parts: list[Part]) -> list[Part]:
        usage = scene.render.usage(Usage(scene.prompt_tok, parts[0].total_tok))
        return [*parts, Part("usage", usage)]

    return _map_tokens(change)


def usage_late(_scene: Scene, argument: str) -> Transform:
    """The usage event comes `argument` ms (500) after the last token."""
    wait_ns = number(argument, 500) * 1_000_000

    def transform(parts: list[Part]) -> list[Part]:
        return [replace(p, wait_ns=p.wait_ns + wait_ns) if p.kind == "usage" else p for p in parts]

    return transform


def usage_wrong(scene: Scene, argument: str) -> Transform:
    """The usage event tells `argument` (7) tokens too many."""
    excess = number(argument, 7)

    def transform(parts: list[Part]) -> list[Part]:
        total = scene.output_tok + excess
        return [
            replace(p, data=scene.render.usage(Usage(scene.prompt_tok, total)))
            if p.kind == "usage"
            else p
            for p in parts
        ]

    return transform


def opener_early(scene: Scene, _argument: str) -> Transform:
    """The role-only event comes with the head, long before the first token."""
    state = {"sent": False}

    def transform(parts: list[Part]) -> list[Part]:
        parts = [part for part in parts if part.kind != "opener"]
        opener = scene.render.opener()
        if state["sent"] or opener is None:
            return parts
        state["sent"] = True
        at = next((i + 1 for i, part in enumerate(parts) if part.kind == "head"), 0)
        return [*parts[:at], Part("opener", opener), *parts[at:]]

    return transform


def no_opener(_scene: Scene, _argument: str) -> Transform:
    """No role-only event."""
    return _drop("opener")


def null_content(scene: Scene, _argument: str) -> Transform:
    """The role-only event has `content: null`."""
    opener = scene.render.delta('{"role":"assistant","content":null}', "null")

    def transform(parts: list[Part]) -> list[Part]:
        return [replace(p, data=opener) if p.kind == "opener" else p for p in parts]

    return transform


def reasoning(_scene: Scene, argument: str) -> Transform:
    """The first `argument` (5) tokens are reasoning."""
    bound = number(argument, 5)
    return _channel("reasoning", lambda index: index < bound)


def tool_calls(_scene: Scene, argument: str) -> Transform:
    """All tokens after the first `argument` (0) are the arguments of a tool call."""
    bound = number(argument, 0)
    return _channel("tool", lambda index: index >= bound)


def _channel(channel: str, inside: Callable[[int], bool]) -> Transform:
    def change(parts: list[Part]) -> list[Part]:
        first_tok = parts[0].total_tok - parts[0].tokens
        return [replace(parts[0], channel=channel)] if inside(first_tok) else parts

    return _map_tokens(change)


def first_chunk(_scene: Scene, argument: str) -> Transform:
    """The first event carries `argument` (5) tokens, held back until the last of them."""
    return _merge(number(argument, 5, least=1))


def one_chunk(_scene: Scene, _argument: str) -> Transform:
    """All tokens come in one event at the end."""
    return _merge(1 << 60)


def _merge(until_tok: int) -> Transform:
    held: list[Part] = []

    def change(parts: list[Part]) -> list[Part]:
        part = parts[0]
        if not held and part.total_tok - part.tokens > 0:
            return parts
        held.append(part)
        if part.total_tok < until_tok and not part.last:
            return []
        text = b"".join(p.text for p in held)
        merged = replace(part, text=text, tokens=sum(p.tokens for p in held))
        held.clear()
        return [merged]

    return _map_tokens(change)


def error_at(scene: Scene, argument: str) -> Transform:
    """After `argument` (3) tokens comes an error object, `[DONE]` as the engine does."""
    limit = number(argument, 3)
    error = {"message": "the engine failed", "type": "InternalServerError", "code": 500}
    data = b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"
    done = [] if scene.render.shape.timings else [Part("done")]
    return _cut(limit, [Part("event", data), *done, Part("end")])


def truncate(_scene: Scene, argument: str) -> Transform:
    """The connection closes after `argument` (3) tokens, the body unfinished."""
    return _cut(number(argument, 3), [Part("raw", b"", after="close")])


def reset(_scene: Scene, argument: str) -> Transform:
    """The connection is reset (RST) after `argument` (3) tokens."""
    return _cut(number(argument, 3), [Part("raw", b"", after="reset")])


def half_close(_scene: Scene, argument: str) -> Transform:
    """The server ends its direction after `argument` (3) tokens and keeps reading."""
    return _cut(number(argument, 3), [Part("raw", b"", after="half_close")])


def clean_end(_scene: Scene, argument: str) -> Transform:
    """The body ends properly after `argument` (3) tokens, with no reason and no `[DONE]`."""
    return _cut(number(argument, 3), [Part("end")])


def hang(_scene: Scene, argument: str) -> Transform:
    """Nothing more comes after `argument` (3) tokens; the connection stays open."""
    return _cut(number(argument, 3), [])


def _cut(limit_tok: int, tail: list[Part]) -> Transform:
    state = {"over": False}

    def transform(parts: list[Part]) -> list[Part]:
        if state["over"]:
            return []
        out: list[Part] = []
        for part in parts:
            if part.kind == "body":
                state["over"] = True
                return [*out, *_cut_body(part, tail)]
            beyond = part.kind in ("finish", "usage", "done", "end")
            if beyond or (part.kind == "token" and part.total_tok > limit_tok):
                state["over"] = True
                return [*out, *(replace(p) for p in tail)]
            out.append(part)
            if part.kind == "token" and part.total_tok == limit_tok:
                state["over"] = True
                return [*out, *(replace(p) for p in tail)]
        return out

    return transform


def _cut_body(part: Part, tail: list[Part]) -> list[Part]:
    """Half of a body that is not streamed, then the tail; all of it where the tail is events."""
    if any(p.kind != "raw" for p in tail) or part.data is None:
        return [part]
    return [Part("raw", part.data[: len(part.data) // 2]), *(replace(p) for p in tail)]


def pause(_scene: Scene, argument: str) -> Transform:
    """After k tokens nothing comes for ms: `pause=k,ms` (3,1000)."""
    after, _, length = argument.partition(",")
    limit, wait_ns = number(after, 3), number(length, 1000) * 1_000_000

    def change(parts: list[Part]) -> list[Part]:
        part = parts[0]
        first = part.total_tok - part.tokens == limit
        return [replace(part, wait_ns=part.wait_ns + wait_ns)] if first else parts

    return _map_tokens(change)


def empty(_scene: Scene, _argument: str) -> Transform:
    """A 200 without a single event."""
    return _drop("opener", "token", "finish", "usage", "done")


def no_tokens(_scene: Scene, _argument: str) -> Transform:
    """All but the tokens: opener, usage and `[DONE]` only."""
    return _drop("token")


def empty_text(_scene: Scene, _argument: str) -> Transform:
    """Token events come, their text is empty; only usage tells how many tokens there were."""
    return _map_tokens(lambda parts: [replace(parts[0], text=b"")])


def endless(scene: Scene, _argument: str) -> Transform:
    """The answer never ends, whatever was asked for."""
    scene.output_tok = 1 << 40
    return lambda parts: parts


def over_cap(scene: Scene, argument: str) -> Transform:
    """`argument` (10) tokens more than asked for."""
    scene.output_tok += number(argument, 10)
    return lambda parts: parts


def after_end(scene: Scene, argument: str) -> Transform:
    """`argument` (2) token events after `[DONE]`."""
    count = number(argument, 2)

    def transform(parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            out.append(part)
            if part.kind == "done":
                out += [Part("token", text=scene.word(i), total_tok=i) for i in range(count)]
        return out

    return transform


def bad_utf8(_scene: Scene, argument: str) -> Transform:
    """The text of token `argument` (2) is no UTF-8."""
    return _retext(number(argument, 2, least=1), b" \xff\xfe\xc3")


def lone_surrogate(_scene: Scene, argument: str) -> Transform:
    """The text of token `argument` (2) is the JSON escape of half a surrogate pair."""
    return _retext(number(argument, 2, least=1), b" \\ud835")


def spaces(_scene: Scene, _argument: str) -> Transform:
    """All text is blanks, so that encoding it again gives another count."""
    return _map_tokens(lambda parts: [replace(parts[0], text=b" " * parts[0].tokens)])


def long_line(_scene: Scene, argument: str) -> Transform:
    """The text of the first token is `argument` (1,048,576) bytes long."""
    return _retext(1, b"a" * number(argument, 1 << 20))


def garble(_scene: Scene, _argument: str) -> Transform:
    """Every token is the same word: the output of a broken model."""
    return _map_tokens(lambda parts: [replace(parts[0], text=b" aaaa" * parts[0].tokens)])


def _retext(index: int, text: bytes) -> Transform:
    def change(parts: list[Part]) -> list[Part]:
        part = parts[0]
        hit = part.total_tok - part.tokens < index <= part.total_tok
        return [replace(part, text=text)] if hit else parts

    return _map_tokens(change)

"""The bytes of answers: SSE events and whole bodies, shaped as each engine shapes them.

An event is `data: ` + head + text + tail + blank line. Head and tail are rendered once a request
and all words are equally long, so that on the fast path a token costs two concatenations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

_FIRST = (
    "ba",
    "de",
    "fi",
    "go",
    "ku",
    "la",
    "me",
    "ni",
    "po",
    "ru",
    "sa",
    "te",
    "vi",
    "wo",
    "za",
    "hu",
)
_SECOND = (
    "rn",
    "lt",
    "nd",
    "st",
    "mp",
    "ck",
    "sh",
    "ng",
    "rk",
    "ft",
    "lo",
    "ra",
    "mi",
    "ne",
    "ta",
    "du",
)
_ORDER = tuple(i * 101 % 256 for i in range(256))
WORDS: tuple[bytes, ...] = tuple(f" {_FIRST[i % 16]}{_SECOND[i // 16]}".encode() for i in _ORDER)
"""256 distinct words of one token each, all five bytes long with their leading space."""

DONE = b"data: [DONE]\n\n"


def words(offset: int, count: int) -> bytes:
    """Return `count` words from position `offset` of the endless text."""
    size = len(WORDS)
    return b"".join(WORDS[(offset + i) % size] for i in range(count))


def phrases(count: int) -> tuple[bytes, ...]:
    """Return, for each starting word, the text of `count` words: the chunks of the fast path."""
    return tuple(words(i, count) for i in range(len(WORDS)))


@dataclass(frozen=True, slots=True)
class Ids:
    """What identifies one answer in its chunks."""

    id: str
    created_s: int
    model: str
    chat: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """The counts at some point of an answer, and its timings for engines that tell them."""

    prompt_tok: int
    output_tok: int
    cached_tok: int = 0
    reasoning_tok: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How one engine writes its chunks. JSON fragments; `REASON` stands for the finish reason.

    `opener` is the role-only delta, None where there is none; `finish_own` says that the reason
    comes in a chunk after the last token's. `channels` maps content, reasoning and tool to what
    stands before and after the text in a delta.
    """

    lead: Callable[[Ids], str]
    trail: Callable[[Ids], str]
    chat_close: str
    text_close: str
    opener: str | None
    finish_own: bool
    channels: dict[str, tuple[str, str]]
    usage_null: bool = False
    details: bool = False
    timings: bool = False
    # llama.cpp ends completions with an empty chunk that always carries the usage.
    text_usage_always: bool = False


def escaped(text: str) -> str:
    """Return text as it stands between the quotes of a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]


def _lead_first(ids: Ids) -> str:
    kind = "chat.completion.chunk" if ids.chat else "text_completion"
    model = escaped(ids.model)
    return f'"id":"{ids.id}","object":"{kind}","created":{ids.created_s},"model":"{model}",'


def _lead_ollama(ids: Ids) -> str:
    return _lead_first(ids) + '"system_fingerprint":"fp_ollama",'


def _no_trail(_ids: Ids) -> str:
    return ""


def _no_lead(_ids: Ids) -> str:
    return ""


def _trail_llamacpp(ids: Ids) -> str:
    kind = "chat.completion.chunk" if ids.chat else "text_completion"
    return (
        f',"created":{ids.created_s},"id":"{ids.id}","model":"{escaped(ids.model)}",'
        f'"system_fingerprint":"b0-reference","object":"{kind}"'
    )


_TOOL = ('{"tool_calls":[{"index":0,"function":{"arguments":"', '"}}]}')

SHAPES: dict[str, Shape] = {
    "vllm": Shape(
        lead=_lead_first,
        trail=_no_trail,
        chat_close=',"logprobs":null,"finish_reason":REASON,"token_ids":null}]',
        text_close=',"logprobs":null,"finish_reason":REASON,"stop_reason":null,'
        '"prompt_token_ids":null,"token_ids":null}]',
        opener='{"role":"assistant","content":""}',
        finish_own=False,
        channels={
            "content": ('{"content":"', '"}'),
            "reasoning": ('{"reasoning":"', '"}'),
            "tool": _TOOL,
        },
    ),
    "sglang": Shape(
        lead=_lead_first,
        trail=_no_trail,
        chat_close=',"logprobs":null,"finish_reason":REASON,"matched_stop":null}]',
        text_close=',"logprobs":null,"finish_reason":REASON,"matched_stop":null}]',
        opener='{"role":"assistant","content":"","reasoning_content":null}',
        finish_own=True,
        channels={
            "content": ('{"role":null,"content":"', '","reasoning_content":null}'),
            "reasoning": ('{"role":null,"content":null,"reasoning_content":"', '"}'),
            "tool": _TOOL,
        },
        usage_null=True,
    ),
    "llamacpp": Shape(
        lead=_no_lead,
        trail=_trail_llamacpp,
        chat_close=',"logprobs":null,"finish_reason":REASON}]',
        text_close=',"logprobs":null,"finish_reason":REASON}]',
        opener='{"role":"assistant","content":null}',
        finish_own=True,
        channels={
            "content": ('{"content":"', '"}'),
            "reasoning": ('{"reasoning_content":"', '"}'),
            "tool": _TOOL,
        },
        details=True,
        timings=True,
        text_usage_always=True,
    ),
    "ollama": Shape(
        lead=_lead_ollama,
        trail=_no_trail,
        chat_close=',"finish_reason":REASON}]',
        text_close=',"finish_reason":REASON}]',
        opener=None,
        finish_own=True,
        channels={
            "content": ('{"role":"assistant","content":"', '"}'),
            "reasoning": ('{"role":"assistant","content":"","reasoning":"', '"}'),
            "tool": _TOOL,
        },
    ),
    "openai": Shape(
        lead=_lead_first,
        trail=_no_trail,
        chat_close=',"logprobs":null,"finish_reason":REASON}]',
        text_close=',"logprobs":null,"finish_reason":REASON}]',
        opener='{"role":"assistant","content":"","refusal":null}',
        finish_own=True,
        channels={
            "content": ('{"content":"', '"}'),
            "reasoning": ('{"reasoning_content":"', '"}'),
            "tool": _TOOL,
        },
        usage_null=True,
        details=True,
    ),
}


def usage_dict(usage: Usage, *, details: bool) -> dict[str, Any]:
    """Return the `usage` object."""
    out: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tok,
        "total_tokens": usage.prompt_tok + usage.output_tok,
        "completion_tokens": usage.output_tok,
    }
    if details:
        out["prompt_tokens_details"] = {"cached_tokens": usage.cached_tok}
    if usage.reasoning_tok:
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tok}
    return out


def timings_dict(usage: Usage) -> dict[str, Any]:
    """Return llama.cpp's `timings`: uncached prompt tokens, rates over n − 1 generated ones."""
    fresh_tok = usage.prompt_tok - usage.cached_tok
    steps = max(usage.output_tok - 1, 1)
    prompt_ms, predicted_ms = max(usage.prompt_ms, 0.001), max(usage.predicted_ms, 0.001)
    return {
        "cache_n": usage.cached_tok,
        "prompt_n": fresh_tok,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / max(fresh_tok, 1),
        "prompt_per_second": fresh_tok * 1e3 / prompt_ms,
        "predicted_n": usage.output_tok,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / steps,
        "predicted_per_second": (usage.output_tok - 1) * 1e3 / predicted_ms,
    }


class Render:
    """The events of one answer. Every method returns one complete SSE event."""

    def __init__(self, shape: Shape, ids: Ids, *, continuous_usage: bool = False) -> None:
        self.shape = shape
        self.ids = ids
        self.continuous_usage = continuous_usage
        self._lead = shape.lead(ids)
        self._trail = shape.trail(ids)

    def edges(
        self, reason: str | None, channel: str = "content", usage: str = ""
    ) -> tuple[bytes, bytes]:
        """Return what stands before and after the text of a token event."""
        shape = self.shape
        if self.ids.chat:
            before, after = shape.channels[channel]
            opening, closing = f'"choices":[{{"index":0,"delta":{before}', after + shape.chat_close
        else:
            opening, closing = '"choices":[{"index":0,"text":"', '"' + shape.text_close
        if reason is None:
            closing = closing.replace("REASON", "null")
        else:
            closing = closing.replace("REASON", f'"{reason}"')
        if not usage and shape.usage_null:
            usage = ',"usage":null'
        head = f"data: {{{self._lead}{opening}"
        return head.encode(), f"{closing}{usage}{self._trail}}}\n\n".encode()

    def token(
        self,
        text: bytes,
        reason: str | None = None,
        channel: str = "content",
        usage: Usage | None = None,
    ) -> bytes:
        """Return the event of some tokens; `usage` is written where usage is continuous."""
        extra = ""
        if self.continuous_usage and usage is not None:
            extra = f',"usage":{_json(usage_dict(usage, details=self.shape.details))}'
        head, tail = self.edges(reason, channel, extra)
        return head + text + tail

    def opener(self) -> bytes | None:
        """Return the role-only event, or None for completions and engines that have none."""
        if not self.ids.chat or self.shape.opener is None:
            return None
        return self.delta(self.shape.opener, "null")

    def finish(self, reason: str, usage: Usage, *, last: bool) -> bytes | None:
        """Return the event that carries only the finish reason, or None where the token does.

        `last` says that no usage event follows, so that llama.cpp puts its timings here.
        """
        shape = self.shape
        if not shape.finish_own:
            return None
        if self.ids.chat:
            extra = f',"timings":{_json(timings_dict(usage))}' if shape.timings and last else ""
            return self.delta("{}", f'"{reason}"', extra)
        head, tail = self.edges(reason, usage=self._text_end(usage))
        return head + tail

    def usage(self, usage: Usage) -> bytes:
        """Return the event with empty `choices` and the counts."""
        shape = self.shape
        extra = f',"timings":{_json(timings_dict(usage))}' if shape.timings else ""
        counts = _json(usage_dict(usage, details=shape.details))
        return (
            f'data: {{{self._lead}"choices":[]{self._trail},"usage":{counts}{extra}}}\n\n'.encode()
        )

    def whole(self, text: bytes, reason: str, usage: Usage, channel: str = "content") -> bytes:
        """Return the body of an answer that is not streamed."""
        shape, ids = self.shape, self.ids
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        if ids.chat:
            choice["message"] = _message(text.decode(), channel, shape)
        else:
            choice["text"] = text.decode()
        body: dict[str, Any] = {
            "id": ids.id,
            "object": "chat.completion" if ids.chat else "text_completion",
            "created": ids.created_s,
            "model": ids.model,
            "choices": [choice],
            "usage": usage_dict(usage, details=shape.details),
        }
        if shape.timings:
            body["timings"] = timings_dict(usage)
        return msgspec.json.encode(body)

    def delta(self, delta: str, reason: str, extra: str = "") -> bytes:
        """Return a chat event with this delta; `reason` is JSON, `extra` follows the trail."""
        shape = self.shape
        closing = shape.chat_close.replace("REASON", reason)
        if not extra and shape.usage_null:
            extra = ',"usage":null'
        body = f'{self._lead}"choices":[{{"index":0,"delta":{delta}{closing}{self._trail}{extra}'
        return f"data: {{{body}}}\n\n".encode()

    def _text_end(self, usage: Usage) -> str:
        if not self.shape.text_usage_always:
            return ""
        counts = _json(usage_dict(usage, details=self.shape.details))
        return f',"usage":{counts},"timings":{_json(timings_dict(usage))}'


def _message(text: str, channel: str, shape: Shape) -> dict[str, Any]:
    if channel == "reasoning":
        field = (
            "reasoning" if 'reasoning"' in shape.channels["reasoning"][0] else "reasoning_content"
        )
        return {"role": "assistant", "content": None, field: text}
    if channel == "tool":
        call = {"id": "call_0", "type": "function"}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**call, "function": {"name": "reference", "arguments": text}}],
        }
    return {"role": "assistant", "content": text}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()

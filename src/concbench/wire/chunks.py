"""One JSON object of an answer, a stream's chunk or a whole body, as typed values.

The usual shapes are decoded straight into structures; whatever does not fit is decoded by the
tolerant standard parser and picked over, so that one odd field loses that field alone.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from msgspec import Struct

from concbench.domain import KIND_CONTENT, KIND_REASONING, KIND_TOOL

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
"""What `decode_chunk` raises for anything but an object of the usual shape."""

MAX_COUNT_TOK = 10**9
MAX_DETAIL_CHARS = 400
MAX_NAME_CHARS = 64
_MAX_INT_CHARS = 18
_MAX_DEPTH = 6
_DURATIONS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)


class Function(Struct, gc=False):
    """The called function of a tool call, or a part of its text."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(Struct, gc=False):
    """A tool call, or a part of one."""

    function: Function | None = None


class Message(Struct, gc=False):
    """A chat delta or a whole message."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None


class Choice(Struct, gc=False):
    """One choice: `delta` in a chat stream, `message` in a chat body, `text` in completions."""

    index: int = 0
    delta: Message | None = None
    message: Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class Chunk(Struct, gc=False):
    """One object of an answer. What is read with care is left untyped."""

    choices: list[Choice] | None = None
    usage: Any = None
    timings: Any = None
    metrics: Any = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
"""Decode the usual shape from bytes; raises one of `DECODE_ERRORS`."""


def decode_any(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return any JSON value, lone surrogates and bad UTF-8 included.

    Numbers too long for a count become None. Raises ValueError or RecursionError for what is no
    JSON, or is nested too deeply.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return json.loads(text, parse_int=_short_int)


def _short_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MAX_INT_CHARS else None


def chunk_from(value: dict[str, Any]) -> Chunk:
    """Pick what is usable from an object that does not have the usual shape."""
    choices = value.get("choices")
    return Chunk(
        choices=[_choice(c) for c in choices if isinstance(c, dict)]
        if isinstance(choices, list)
        else None,
        usage=value.get("usage"),
        timings=value.get("timings"),
        metrics=value.get("metrics"),
        error=value.get("error"),
    )


def _choice(value: dict[str, Any]) -> Choice:
    index = value.get("index")
    reason = value.get("finish_reason")
    if isinstance(reason, dict):
        reason = reason.get("type")
    return Choice(
        index=index if isinstance(index, int) else 0,
        delta=_message(value.get("delta")),
        message=_message(value.get("message")),
        text=_text(value.get("text")),
        finish_reason=_text(reason),
    )


def _message(value: object) -> Message | None:
    if not isinstance(value, dict):
        return None
    calls = value.get("tool_calls")
    return Message(
        role=_text(value.get("role")),
        content=_content(value.get("content")),
        reasoning=_text(value.get("reasoning")),
        reasoning_content=_text(value.get("reasoning_content")),
        tool_calls=[ToolCall(_function(c.get("function"))) for c in calls if isinstance(c, dict)]
        if isinstance(calls, list)
        else None,
        function_call=_function(value.get("function_call")),
    )


def _function(value: object) -> Function | None:
    if not isinstance(value, dict):
        return None
    arguments = value.get("arguments")
    # Some servers send the arguments as an object and not as its text.
    whole = isinstance(arguments, dict) and arguments
    return Function(_text(value.get("name")), _words(arguments) if whole else _text(arguments))


def _content(value: object) -> str | None:
    """Return content that is text, or a list of parts with text."""
    if isinstance(value, list):
        parts = (_text(part.get("text")) for part in value if isinstance(part, dict))
        return "".join(part for part in parts if part)
    return _text(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def choice_text(choice: Choice, *, completions: bool) -> tuple[int, str]:
    """Return the kind (KIND_*) and the text of a choice; an empty text means no token.

    Text that a reader of the answer would see decides the kind where a chunk holds several.
    """
    message = choice.delta or choice.message
    if message is None or (completions and choice.text is not None):
        return KIND_CONTENT, choice.text or ""
    content = message.content or ""
    # Both names carry the same text where both are sent.
    reasoning = message.reasoning or message.reasoning_content or ""
    tool = ""
    if message.tool_calls or message.function_call:
        functions = [call.function for call in message.tool_calls or ()]
        tool = "".join(
            (f.name or "") + (f.arguments or "") for f in (*functions, message.function_call) if f
        )
    kind = KIND_CONTENT if content else KIND_TOOL if tool else KIND_REASONING
    return kind, reasoning + content + tool


def count_tok(value: object) -> int | None:
    """Return a token count, or None for whatever cannot be one (bool, float, negative, huge)."""
    if type(value) is int and 0 <= value <= MAX_COUNT_TOK:
        return value
    return None


def error_text(error: object) -> str:
    """Return `code: message` of an error object or text, on one line and encodable."""
    if isinstance(error, dict):
        code = next((error[k] for k in ("code", "status_code", "type") if error.get(k)), None)
        message = next((error[k] for k in ("message", "error", "detail") if error.get(k)), None)
        if isinstance(message, dict):
            message = message.get("message") or message
        words = [_words(part) for part in (code, message) if part]
        return _short(": ".join(words)) or "an error object without a message"
    return _short(_words(error)) or "an empty error"


def bare_error(value: dict[str, Any]) -> str | None:
    """Return the text of an error in an object that has no choices, or None.

    Knows the wrapped form, SGLang's flat `{"object": "error", …}` and FastAPI's `detail`.
    """
    if value.get("error"):
        return error_text(_wrapped(value))
    if value.get("object") == "error":
        return error_text(value)
    if value.get("detail") and not value.get("choices"):
        return _short(_words(value["detail"]))
    return None


def _wrapped(value: dict[str, Any]) -> object:
    """Return what stands under `error`, with the code beside it where only that level has one."""
    error = value["error"]
    code = value.get("code") or value.get("error_type")
    return {"code": code, "message": error} if code and isinstance(error, str) else error


def durations(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return Ollama's own timings (ns and counts) where an object carries them."""
    found = {key: value[key] for key in _DURATIONS if key in value}
    return plain_dict(found) if "total_duration" in found else None


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return type(value).__name__


def _short(text: str) -> str:
    return clean(" ".join(text[: 4 * MAX_DETAIL_CHARS].split())[:MAX_DETAIL_CHARS])


def clean(text: str) -> str:
    """Return text that can always be encoded: lone surrogates become U+FFFD.

    Halves of a pair that came in two chunks are put together.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def plain_dict(value: object, depth: int = 0) -> dict[str, Any] | None:
    """Return a dict of finite numbers, short texts, lists and dicts; None for no dict."""
    if not isinstance(value, dict):
        return None
    return {clean(key)[:MAX_NAME_CHARS]: _plain(item, depth + 1) for key, item in value.items()}


def _plain(value: object, depth: int) -> Any:  # noqa: ANN401 - JSON has no narrower type
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _short(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return plain_dict(value, depth)

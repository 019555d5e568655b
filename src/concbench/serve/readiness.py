"""Ready means that a token came, not that a port answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from concbench.clock import now_ns, sleep_s
from concbench.engines.spec import Answer
from concbench.errors import NotReady, TargetError, WrongModel, WrongPath
from concbench.serve.http import NoAnswer, error_message, parse_json
from concbench.serve.probe import Alive, Attached, still_loading
from concbench.serve.refusals import no_answer_error, status_error

POLL_S = 0.05
FAILURES_ALLOWED = 5
"""Plain 500s in a row that are put up with before the start is called a failure."""

_PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_NO_MODEL = re.compile(
    r"model\b.*\b(not (found|exist|available)|does ?n.t exist|does not exist|unknown)", re.I
)


@dataclass(frozen=True, slots=True)
class FirstToken:
    """When the first token came, and how long the request that brought it took.

    `waited_ns` is from the first attempt to the token: for a server met while it loads, the time
    that its load still took.
    """

    first_token_ns: int
    first_request_ns: int
    waited_ns: int
    attempts: int


def wait_for_token(
    attached: Attached,
    deadline_s: float,
    alive: Alive | None = None,
    endpoint: Literal["chat", "completions"] = "chat",
) -> FirstToken:
    """Ask for one token until one comes.

    Refused connections, 502, 503, 504 and whatever the engine says while it loads are waited out;
    so is 404 where the server was started here (`alive` given). Raises NotReady when the process
    dies or the time is over, Refused, WrongModel, WrongPath at once for what waiting cannot mend.
    """
    began_ns = now_ns()
    end_ns = began_ns + int(deadline_s * 1e9)
    path = attached.api_prefix + _PATHS[endpoint]
    failures, attempts, max_tokens = 0, 0, 1
    while True:
        if alive and (died := alive()):
            raise NotReady(died)
        attempts += 1
        sent_ns = now_ns()
        left_s = max(0.1, (end_ns - sent_ns) / 1e9)
        body = _body(attached, endpoint, max_tokens)
        answer = attached.http.post_json(path, body, timeout_s=left_s)
        came_ns = now_ns()
        if answer.ok:
            if _has_token(answer):
                return FirstToken(came_ns, came_ns - sent_ns, came_ns - began_ns, attempts)
            if max_tokens > 1:
                raise NotReady(
                    f"{attached.root}{path} answers, but without a token: {_said(attached, answer)}"
                )
            # A single token can be one that prints as nothing, where no usage is given either.
            max_tokens = 16
            continue
        failures = failures + 1 if answer.status == 500 else 0
        tolerated = (404,) if alive else ()
        waits = still_loading(answer, attached.spec) or answer.status in (429, *tolerated)
        if not waits and (answer.status != 500 or failures >= FAILURES_ALLOWED):
            raise _hopeless(attached, path, answer)
        if now_ns() >= end_ns:
            raise NotReady(
                f"{attached.root} gave no token in {deadline_s:g} s; "
                f"last: {_said(attached, answer)}"
            )
        sleep_s(POLL_S)


def _body(attached: Attached, endpoint: str, max_tokens: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": attached.model, "max_tokens": max_tokens, "stream": False}
    body.update(attached.spec.request_fields(False, False))
    if endpoint == "chat":
        return {**body, "messages": [{"role": "user", "content": "Hi"}]}
    return {**body, "prompt": "Hi"}


def _has_token(answer: Answer) -> bool:
    """Return whether the answer carries a token: by its usage, else by any text."""
    value = parse_json(answer)
    if not isinstance(value, dict):
        return False
    usage = value.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int):
        return counted > 0
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return False
    message = choices[0].get("message")
    parts = message if isinstance(message, dict) else choices[0]
    return any(parts.get(key) for key in ("content", "reasoning_content", "reasoning", "text"))


def _hopeless(attached: Attached, path: str, answer: Answer) -> TargetError:
    """Return the error for an answer that waiting will not change."""
    called = attached.root + path
    if isinstance(answer, NoAnswer):
        return no_answer_error(answer, attached.root)
    said = attached.http.excerpt(answer)
    if answer.status in (401, 403) or 300 <= answer.status < 400:
        return status_error(answer, called, said)
    if answer.status in (400, 404) and _NO_MODEL.search(error_message(answer) or ""):
        return WrongModel(f"{called} does not serve {attached.model!r}: {said}")
    if answer.status in (404, 405):
        return WrongPath(f"{called} answered {answer.status} ({said}): is that the API's base URL?")
    hint = "; a base model without a chat template needs --endpoint completions"
    shown = hint if path.endswith("/chat/completions") and answer.status in (400, 422) else ""
    return NotReady(f"{called} answered {answer.status}: {said}{shown}")


def _said(attached: Attached, answer: Answer) -> str:
    text = attached.http.excerpt(answer)
    return f"{answer.status} {text}".rstrip() if answer.status else text

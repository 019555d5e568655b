"""The requests that are sent: JSON bodies and HTTP bytes, rendered before the clock starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from concbench.load.script import Outgoing
from concbench.plan.prompts import Prompt
from concbench.wire.http import render_request

PATHS = {"chat": "/chat/completions", "completions": "/completions"}


@dataclass(frozen=True, slots=True)
class Ask:
    """Everything but the prompt: where to, which model, how much, and the engine's own fields.

    `engine_fields` come from the engine's spec (`ignore_eos`, `cache_prompt`, …); `extra_body`
    is the user's and wins. `host` is the Host header; `prefix` the API's path, usually `/v1`.
    """

    host: str
    prefix: str
    model: str
    endpoint: Literal["chat", "completions"] = "chat"
    stream: bool = True
    temperature: float = 0.0
    engine_fields: dict[str, Any] = field(default_factory=dict)
    extra_body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> str:
        """The request's path."""
        return self.prefix + PATHS[self.endpoint]

    def body(self, prompt: str | list[dict[str, Any]], output_tok: int) -> dict[str, Any]:
        """Return the JSON body for a prompt: text, or a chat's messages."""
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": output_tok,
            "temperature": self.temperature,
            "stream": self.stream,
        }
        if self.endpoint == "chat":
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            fields["messages"] = messages
        else:
            fields["prompt"] = prompt
        if self.stream:
            fields["stream_options"] = {"include_usage": True}
        return {**fields, **self.engine_fields, **self.extra_body}

    def render(
        self, prompt: str | list[dict[str, Any]], output_tok: int, number: int, tag: str
    ) -> Outgoing:
        """Return the request's bytes. `tag` and `number` make the X-Request-Id header."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if self.stream else "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "concbench",
            "X-Request-Id": f"{tag}-{number}",
            **self.headers,
        }
        body = msgspec.json.encode(self.body(prompt, output_tok))
        payload = render_request("POST", self.path, self.host, headers, body)
        return Outgoing(payload, output_tok, number, self.stream)


def render_all(
    ask: Ask, prompts: Sequence[Prompt], output_tok: Sequence[int], tag: str
) -> list[Outgoing]:
    """Render one request a prompt, with its own output length."""
    return [
        ask.render(prompt.messages or prompt.text, length, number, tag)
        for number, (prompt, length) in enumerate(zip(prompts, output_tok, strict=True))
    ]

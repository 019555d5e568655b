"""Counting tokens by asking the server that will receive them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from concbench.serve.http import Http
from concbench.serve.probe import Attached

PATH = "/tokenize"


@dataclass(slots=True)
class ServerTokenizer:
    """A `plan.prompts.Tokenizer` over the server's `/tokenize`, in the engine's own form.

    Text is counted as it stands: no template, no BOS.
    """

    http: Http
    form: Literal["llamacpp", "vllm"]
    model: str

    @classmethod
    def of(cls, attached: Attached) -> ServerTokenizer | None:
        """Return the tokenizer of a lane, or None where its engine has none."""
        form = attached.spec.tokenize
        return None if form == "none" else cls(attached.http, form, attached.model)

    def count(self, texts: Sequence[str]) -> list[int] | None:
        """Return the tokens of each text, or None as soon as the server does not say."""
        counts: list[int] = []
        for text in texts:
            count = self._count_one(text)
            if count is None:
                return None
            counts.append(count)
        return counts

    def _count_one(self, text: str) -> int | None:
        if self.form == "llamacpp":
            body: dict[str, object] = {"content": text, "add_special": False}
        else:
            body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        answer = self.http.post_json(PATH, body)
        if not answer.ok:
            return None
        try:
            parsed = json.loads(answer.body)
        except ValueError:
            return None
        if not isinstance(parsed, dict):
            return None
        count, tokens = parsed.get("count"), parsed.get("tokens")
        if isinstance(count, int):
            return count
        return len(tokens) if isinstance(tokens, list) else None

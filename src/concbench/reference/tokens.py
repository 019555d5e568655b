"""A deterministic tokenizer: one token a word. And a prefix cache over its blocks. Pure."""

from __future__ import annotations

import zlib
from typing import Any

_BEFORE = ("<|system|>", "You", "are", "a", "reference", "model", ".", "<|end|>", "<|user|>")
_AFTER = ("<|end|>", "<|assistant|>", "<|begin|>")

TEMPLATE_TOK = len(_BEFORE) + len(_AFTER)
"""Tokens that the chat template adds to the words of the messages, however many there are."""

_VOCABULARY = 49_152


def apply_template(text: str) -> str:
    """Return the prompt that a chat with this text becomes."""
    return f"{' '.join(_BEFORE)} {text} {' '.join(_AFTER)}"


def message_text(messages: list[Any]) -> str:
    """Return the text of chat messages (dicts with `content`: a string, parts, or null)."""
    texts = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts += [str(p.get("text", "")) for p in content if isinstance(p, dict)]
    return " ".join(texts)


class Tokenizer:
    """Words to numbers by their checksum; back again for every word that it has seen."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """Return one token a word; words with one checksum share a token."""
        out = []
        for word in text.split():
            token = zlib.crc32(word.encode("utf-8", "replace")) % _VOCABULARY
            self._seen.setdefault(token, word)
            out.append(token)
        return out

    def decode(self, tokens: list[int]) -> str:
        """Return the words of tokens; one never seen becomes a word of its own."""
        return " ".join(self._seen.get(token, f"tok{token}") for token in tokens)


class PrefixCache:
    """Remembers the blocks of the prompts that it was shown, each in the light of all before it."""

    def __init__(self, block_tok: int) -> None:
        self._block_tok = block_tok
        self._blocks: set[int] = set()

    def look_up(self, tokens: list[Any]) -> int:
        """Return how many leading tokens are known, in whole blocks, and remember the rest.

        The last token is always computed, as engines do: something must be fed to get logits.
        """
        known_tok, chain, matching = 0, 0, True
        for end in range(self._block_tok, len(tokens) + 1, self._block_tok):
            chain = hash((chain, tuple(tokens[end - self._block_tok : end])))
            matching = matching and chain in self._blocks
            if matching and end < len(tokens):
                known_tok = end
            self._blocks.add(chain)
        return known_tok

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()

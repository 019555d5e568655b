"""Tokenizers for tests: no model, no server."""

import re


class Counting:
    """Counts its calls and texts; `rule` gives the tokens of one text."""

    def __init__(self, rule):
        self.rule = rule
        self.calls = 0
        self.texts = 0

    def count(self, texts):
        self.calls += 1
        self.texts += len(texts)
        return [self.rule(text) for text in texts]


PRETOKEN = re.compile(r"[^\r\n\w]?[^\W\d_]+|\d{1,3}| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|_")


def bpe_like(text):
    """A token for every pretoken, two for long words, and one in front of it all."""
    return 1 + sum(1 + (len(part) > 8) for part in PRETOKEN.findall(text))


def sticky(text):
    """Not additive: some neighbouring words melt into one token."""
    return bpe_like(text) - len(re.findall(r"of the|the [aeiou]\w+", text))


def bytewise(text):
    """A token for every byte."""
    return len(text.encode())


def tetragrams(text):
    """Not additive at all: four characters a token, whatever they are."""
    return -(-len(text) // 4)

"""Answers as `serve` would hand them in: from captured files, or made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concbench.engines.spec import Answer, Fact

FIXTURES = Path(__file__).parent.parent / "fixtures"


def captured(path: str) -> Answer:
    return Answer(200, {}, (FIXTURES / path).read_bytes())


def text_of(path: str) -> str:
    return (FIXTURES / path).read_text(encoding="utf-8")


def answer(body: object, status: int = 200, **headers: str) -> Answer:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Answer(status, headers, raw)


def values(known: dict[str, Fact]) -> dict[str, object]:
    return {key: fact.value for key, fact in known.items()}


def codes(found: list) -> set[str]:
    return {trap.code for trap in found}


NOTHING = Answer(0, {}, b"")

VLLM = {
    "/version": captured("vllm/version.json"),
    "/v1/models": captured("vllm/models.json"),
    "/metrics": captured("vllm/metrics.prom"),
}
LLAMACPP = {
    "/props": captured("llamacpp/props.json"),
    "/v1/models": captured("llamacpp/models.json"),
    "/slots": captured("llamacpp/slots.json"),
}


def same(found: dict, expected: dict) -> bool:
    """Compare log values: numbers nearly, everything else exactly."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        nearly = isinstance(value, float)
        assert found[key] == (pytest.approx(value) if nearly else value), key
        assert isinstance(found[key], bool) == isinstance(value, bool), key
    return True

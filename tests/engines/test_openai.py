from __future__ import annotations

import pytest

from concbench.engines.openai import ENGINE
from tests.engines.answers import answer, codes, values


@pytest.mark.parametrize("key", ["max_model_len", "context_length", "context_window"])
def test_facts(key):
    models = answer({"data": [{"id": "adapter", "parent": "m"}, {"id": "m", key: 4096}]})
    known = values(ENGINE.describe({"/v1/models": models}, None, []))
    assert known == {"model": "m", "max_context_tok": 4096}


def test_the_rest():
    assert ENGINE.parse_log("anything") is None
    assert codes(ENGINE.traps({}, None, {}, 1)) == {"unknown_engine"}
    assert ENGINE.request_fields(True, False) == {}

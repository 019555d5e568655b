from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concbench.reference.tokens import (
    TEMPLATE_TOK,
    PrefixCache,
    Tokenizer,
    apply_template,
    message_text,
)


@given(st.text(max_size=200))
def test_a_word_is_a_token_and_comes_back(text: str):
    tokenizer = Tokenizer()
    tokens = tokenizer.encode(text)
    assert len(tokens) == len(text.split())
    assert tokens == Tokenizer().encode(text)
    again = tokenizer.encode(tokenizer.decode(tokens))
    assert again == tokens


def test_tokens_never_seen_are_still_one_word_each():
    assert len(Tokenizer().decode([1, 2, 3]).split()) == 3


def test_the_template_adds_a_fixed_number():
    assert len(apply_template("a b c").split()) == 3 + TEMPLATE_TOK == 15


def test_message_text_takes_every_form_of_content():
    messages = [
        {"role": "system", "content": "a b"},
        {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None},
        "no message",
    ]
    assert message_text(messages).split() == ["a", "b", "c"]


def test_the_prefix_cache_knows_whole_blocks_but_never_the_last_token():
    cache = PrefixCache(4)
    prompt = list(range(12))
    assert cache.look_up(prompt) == 0
    assert cache.look_up(prompt) == 8
    assert cache.look_up([*prompt, 99]) == 12
    assert cache.look_up([0, 1, 2, 3, 7, 7, 7, 7, 7]) == 4
    assert cache.look_up([9, 1, 2, 3, 4, 5, 6, 7, 8]) == 0
    cache.clear()
    assert cache.look_up(prompt) == 0

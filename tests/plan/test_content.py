import hashlib
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.plan import vocabulary
from concbench.plan.content import KINDS, PIECE, alphabet, known_kind, pieces

GOLDEN = {
    "prose": "f00ea0fd69e90073",
    "code": "9b4a3bc456d5c9fa",
    "json": "9414ec466b75e422",
    "repetition": "f0245a252608b2a8",
    "words": "035c0eecb2660545",
}


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_the_same_for_ever(kind):
    """A change of these hashes changes every workload: say so in the changelog."""
    text = "".join(islice(pieces(kind, 1234, 7), 5000))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == GOLDEN[kind]


@given(st.sampled_from(KINDS), st.integers(0, 1 << 70), st.integers(0, 1 << 40))
def test_pieces_are_known_and_cut_after_letters(kind, seed, index):
    found = list(islice(pieces(kind, seed, index), 300))
    assert set(found) <= set(alphabet(kind))
    assert all(PIECE.fullmatch(piece) for piece in found)
    assert PIECE.findall("".join(found)) == found
    assert found == list(islice(pieces(kind, seed, index), 300))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_differ_by_seed_and_index(kind):
    texts = {
        "".join(islice(pieces(kind, seed, index), 60)) for seed in range(4) for index in range(4)
    }
    assert len(texts) >= (16 if kind != "repetition" else 12)


def test_repetition_repeats():
    found = list(islice(pieces("repetition", 1, 1), 400))
    period = found.index(found[0], 1)
    while found[period : 2 * period] != found[:period]:
        period = found.index(found[0], period + 1)
    assert period < 60
    assert found == (found[:period] * 400)[:400]


def test_prose_uses_the_whole_vocabulary():
    used = set(islice(pieces("prose", 3, 0), 60_000))
    assert len(used) > 0.95 * len(alphabet("prose"))


def test_words_are_listed_once():
    for words in (
        vocabulary.NOUNS,
        vocabulary.ADJECTIVES,
        vocabulary.VERBS,
        vocabulary.ADVERBS,
        vocabulary.PREPOSITIONS,
        vocabulary.IDENTIFIERS,
        vocabulary.CODE_VERBS,
    ):
        assert len(words) == len(set(words))
        assert all(word.isascii() and word.isalpha() and word.islower() for word in words)


def test_known_kind():
    assert known_kind("json") == "json"
    with pytest.raises(UsageError, match='content "poem" is unknown; expected one of prose'):
        known_kind("poem")

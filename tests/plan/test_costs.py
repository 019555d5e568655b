import pytest

from concbench.plan.content import KINDS, alphabet
from concbench.plan.costs import TokenizerSilent, learn_costs
from tests.plan.fake_tokenizers import PRETOKEN, Counting, bpe_like, bytewise


@pytest.mark.parametrize("kind", KINDS)
def test_costs_are_what_each_piece_alone_costs(kind):
    tokenizer = Counting(bpe_like)
    costs = learn_costs(alphabet(kind), tokenizer)
    assert costs == {p: bpe_like("x" + p) - bpe_like("x") for p in alphabet(kind)}
    assert tokenizer.calls <= 5


def test_few_texts_where_words_are_single_tokens():
    tokenizer = Counting(lambda text: len(PRETOKEN.findall(text)))
    words = alphabet("words")
    assert learn_costs(words, tokenizer) == dict.fromkeys(words, 1)
    assert tokenizer.calls == 1
    assert tokenizer.texts < len(words) / 15


def test_bytes():
    assert learn_costs([" cat", ", and"], Counting(bytewise)) == {" cat": 4, ", and": 5}


def test_nothing_to_learn():
    assert learn_costs([], Counting(bpe_like)) == {}


class Silent:
    def count(self, texts):
        return None


def test_silent():
    with pytest.raises(TokenizerSilent):
        learn_costs([" cat"], Silent())

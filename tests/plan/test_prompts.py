import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.plan.content import KINDS
from concbench.plan.prompts import (
    Calibration,
    make_prompts,
    prompts_sha256,
    repeated_starts,
    word_count,
)
from tests.plan.fake_tokenizers import Counting, bpe_like, bytewise, sticky, tetragrams

GOLDEN_COUNTED = "32403236b00242d5"
GOLDEN_ESTIMATED = "2257a4b2448cf3d5"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "target_tok"), [(8, 50), (3, 1000), (1, 100_000)])
def test_exact_in_one_verification(kind, n, target_tok):
    tokenizer = Counting(bpe_like)
    prompts = make_prompts(n, target_tok, kind, 7, 0, tokenizer, template_tok=12)
    assert [p.tok for p in prompts] == [target_tok] * n
    assert all(p.exact and bpe_like(p.text) + 12 == target_tok for p in prompts)
    assert len({p.sha256 for p in prompts}) == n
    assert tokenizer.calls <= 8  # heads, costs in five, verification, one repair at most


@pytest.mark.parametrize("rule", [sticky, bytewise])
@pytest.mark.parametrize("kind", KINDS)
def test_repaired_where_tokens_do_not_add_up(rule, kind):
    for prompt in make_prompts(6, 400, kind, 3, 100, Counting(rule), template_tok=5):
        assert prompt.exact
        assert rule(prompt.text) + 5 == prompt.tok == 400


@pytest.mark.parametrize("kind", KINDS)
def test_near_where_tokens_do_not_add_up_at_all(kind):
    for prompt in make_prompts(6, 400, kind, 3, 100, Counting(tetragrams)):
        assert prompt.exact == (tetragrams(prompt.text) == 400)
        assert abs(prompt.tok - 400) <= 1


def test_inexact_where_no_text_has_the_length():
    """A tokenizer that pads to even counts can never be odd: bounded tries, then say so."""
    even = Counting(lambda text: bpe_like(text) + bpe_like(text) % 2)
    for prompt in make_prompts(3, 301, "prose", 3, 0, even):
        assert not prompt.exact
        assert prompt.tok == even.rule(prompt.text)
        assert abs(prompt.tok - 301) <= 3


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(30, 700), st.integers(0, 1 << 40), st.integers(0, 10**6))
def test_any_target(kind, target_tok, seed, first_index):
    prompts = make_prompts(2, target_tok, kind, seed, first_index, Counting(bpe_like), 7)
    assert [p.tok for p in prompts] == [target_tok] * 2
    assert [p.index for p in prompts] == [first_index, first_index + 1]


def test_costs_are_learned_once():
    costs = {}
    make_prompts(4, 2000, "prose", 1, 0, Counting(bpe_like), costs=costs)
    again = Counting(bpe_like)
    make_prompts(4, 2000, "prose", 1, 4, again, costs=costs)
    assert again.calls <= 4
    assert again.texts <= 13


def test_too_small_names_the_minimum():
    """A length that leaves no room for a distinct prompt is refused before anything is sent."""
    with pytest.raises(
        UsageError, match=r"--prompt-tokens 1 is too small.* the minimum is \d+$"
    ) as e:
        make_prompts(4, 1, "prose", 1, 0, Counting(bpe_like), 12)
    least_tok = int(str(e.value).rsplit(" ", 1)[1])
    assert all(p.exact for p in make_prompts(4, least_tok, "prose", 1, 0, Counting(bpe_like), 12))
    with pytest.raises(UsageError):
        make_prompts(4, least_tok - 1, "prose", 1, 0, Counting(bpe_like), 12)


def test_too_small_without_a_tokenizer():
    calibration = Calibration(template_tok=20.4, tok_per_word=1.3)
    with pytest.raises(UsageError, match=r"the minimum is 27$"):
        make_prompts(4, 26, "prose", 1, calibration=calibration)
    (prompt,) = make_prompts(1, 27, "prose", 1, calibration=calibration)
    assert word_count(prompt.text) == 5


def test_distinct_from_the_first_words():
    prompts = make_prompts(300, 60, "prose", 1, 0, Counting(bpe_like))
    assert len({p.text.split()[0] for p in prompts}) == 300
    assert repeated_starts(prompts) == 0
    other_run = make_prompts(300, 60, "prose", 2, 0, Counting(bpe_like))
    assert not {p.text[:40] for p in prompts} & {p.text[:40] for p in other_run}
    rerun = make_prompts(300, 60, "prose", 1, 0, Counting(bpe_like))
    assert [p.sha256 for p in rerun] == [p.sha256 for p in prompts]


def test_same_prompt():
    prompts = make_prompts(5, 60, "prose", 1, 10, Counting(bpe_like), same_prompt=True)
    assert len({p.text for p in prompts}) == 1
    assert [p.index for p in prompts] == [10, 11, 12, 13, 14]
    assert repeated_starts(prompts) == 4


def test_no_prompts():
    assert make_prompts(0, 60, "prose", 1, 0, Counting(bpe_like)) == []
    assert make_prompts(0, 60, "prose", 1, same_prompt=True) == []


class Silent:
    def count(self, texts):
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_estimated_without_a_tokenizer(kind):
    calibration = Calibration(template_tok=14, tok_per_word=1.25)
    for prompt in make_prompts(4, 500, kind, 1, 0, Silent(), 99, calibration=calibration):
        assert not prompt.exact
        assert prompt.tok == round(14 + 1.25 * word_count(prompt.text))
        assert abs(prompt.tok - 500) <= 1
    assert abs(make_prompts(1, 500, kind, 1)[0].tok - 500) <= 2


def test_golden():
    """A change of these hashes changes every workload: say so in the changelog."""
    counted = make_prompts(8, 200, "prose", 1234, 0, Counting(bpe_like), 10)
    estimated = make_prompts(8, 200, "code", 1234, 3)
    assert prompts_sha256(counted)[:16] == GOLDEN_COUNTED
    assert prompts_sha256(estimated)[:16] == GOLDEN_ESTIMATED
    assert prompts_sha256(counted[::-1]) != prompts_sha256(counted)

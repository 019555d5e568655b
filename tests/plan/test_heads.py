from hypothesis import given
from hypothesis import strategies as st

from concbench.plan.heads import NONCE_WORDS, nonce

SIZE = len(NONCE_WORDS)


def test_first_words_differ_as_long_as_the_vocabulary_allows():
    assert len({nonce(9, i).split()[0] for i in range(SIZE)}) == SIZE


def test_first_two_words_always_differ():
    starts = {tuple(nonce(9, i).split()[:2]) for i in range(20 * SIZE)}
    assert len(starts) == 20 * SIZE


@given(st.integers(0, SIZE**3), st.integers(0, SIZE**3), st.integers(0, 1 << 64))
def test_any_two_prompts_of_a_run_differ(i, j, seed):
    assert (nonce(seed, i) == nonce(seed, j)) == (i == j)


@given(
    st.integers(0, SIZE**2 - 1),
    st.integers(0, SIZE**2 - 1),
    st.integers(0, SIZE**2 - 1),
    st.integers(0, SIZE**2 - 1),
)
def test_two_runs_share_no_first_four_words(seed, other, i, j):
    if seed != other:
        assert nonce(seed, i).split()[:4] != nonce(other, j).split()[:4]


def test_neighbouring_seeds_do_not_walk_the_same_pairs():
    pairs = [{tuple(nonce(seed, i).split()[:2]) for i in range(SIZE)} for seed in range(5)]
    assert all(len(a & b) < SIZE // 50 for a in pairs for b in pairs if a is not b)

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from concbench.plan.splitmix import SplitMix64, derive, mix64, uint16s


def test_known_answers():
    """The published sequence for seed 1234567."""
    numbers = SplitMix64(1234567)
    assert [numbers.next_u64() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_quarters_are_the_same_stream():
    whole = SplitMix64(1234567).next_u64()
    assert sum(q << (16 * i) for i, q in enumerate(islice(uint16s(1234567), 4))) == whole


@given(st.integers(), st.integers(1, 1000))
def test_ranges(seed, n):
    numbers = SplitMix64(seed)
    assert 0 <= numbers.below(n) < n
    assert 0 <= numbers.unit() < 1
    assert sorted(numbers.permutation(n)) == list(range(n))
    assert 0 <= mix64(seed) < 1 << 64


def test_derive_depends_on_every_part_and_their_order():
    seeds = {derive(1, 2), derive(2, 1), derive(1), derive(1, 2, 0), derive(0, 1, 2), derive()}
    assert len(seeds) == 6


def test_permutations_are_uniform():
    counts = {}
    numbers = SplitMix64(5)
    for _ in range(6000):
        key = tuple(numbers.permutation(3))
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 6
    assert sum((c - 1000) ** 2 / 1000 for c in counts.values()) < 20.5  # χ², 5 degrees, p = 0.001

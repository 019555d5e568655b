"""The fuzz targets, quickly: every kept input, and a few hundred mutants from a fixed seed.

`make fuzz` runs them for as long as wanted. Each finding of it becomes a file of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.fuzz.__main__ import corpus_of, execute
from tests.fuzz.mutate import MOST_BYTES, mutants
from tests.fuzz.targets import TARGETS, clean_up

MUTANTS = {"study": 60, "logs": 60, "metrics": 100}


@pytest.fixture(autouse=True)
def scratch() -> Iterator[None]:
    yield
    clean_up()


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_and_some_mutants(name: str) -> None:
    kept = corpus_of(name)
    assert kept, "a target needs inputs to start from"
    for data in kept:
        execute(name, data)
    for data in islice(mutants(kept, TARGETS[name].words, seed=9), MUTANTS.get(name, 300)):
        execute(name, data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_mutants_of_a_seed_are_always_the_same(name: str) -> None:
    kept = corpus_of(name)
    one, other = (list(islice(mutants(kept, TARGETS[name].words, 3), 40)) for _ in range(2))
    assert one == other
    assert max(map(len, one)) <= MOST_BYTES
    assert len(set(one)) > 20

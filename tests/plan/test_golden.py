"""The same seed gives the same prompts, order and schedule on any machine and in any version.

A changed hash means that results with one seed are no longer results of one workload: it is a
breaking change, and belongs into the changelog under its own heading.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from concbench.plan.order import ab_order, cell_order, letters_of, pair_seed
from concbench.plan.prompts import make_prompts
from concbench.plan.schedule import burst, constant, output_lengths_closed, poisson, trace
from concbench.plan.splitmix import derive

GOLDEN = {
    "prompts prose 50": "3587421b5172d40c",
    "prompts prose 2000": "8d06584728f0308f",
    "prompts code 50": "9ee3d43bfdcd01aa",
    "prompts code 2000": "b8d63ce86e233c5b",
    "prompts json 50": "eff0a96fb047757d",
    "prompts json 2000": "c3121ba00cdb8a43",
    "prompts repetition 50": "ed53e95bfa3e72dc",
    "prompts repetition 2000": "439ada8077b9542b",
    "prompts words 50": "fd97e506777a4d25",
    "prompts words 2000": "0b5ea498bab0d86d",
    "prompts of another seed": "ab60c127c3c9d295",
    "derived seeds": "27566ede0ca5b7f4",
    "pair seeds": "112e4b956df3195d",
    "cell order": "15f80286b7cf6ce6",
    "ab order": "447956ff183a7506",
    "poisson": "2d868db28167f07f",
    "poisson by duration": "fa47f4c909af6430",
    "constant": "3dd3d21f97086bce",
    "trace": "3ac0a7bbc3056356",
    "burst": "aff24e1891407fc1",
    "closed lengths": "acc268b5851aa23e",
}


def digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def made() -> dict[str, str]:
    """Return a hash of everything that a seed decides."""
    found = {}
    for kind in ("prose", "code", "json", "repetition", "words"):
        for target in (50, 2000):
            texts = [prompt.text for prompt in make_prompts(6, target, kind, 1234, 3)]
            found[f"prompts {kind} {target}"] = digest(texts)
    found["prompts of another seed"] = digest([p.text for p in make_prompts(6, 50, "prose", 4321)])
    found["derived seeds"] = digest([derive(1234, k) for k in range(50)])
    found["pair seeds"] = digest([pair_seed(1234, k) for k in range(50)])
    found["cell order"] = digest(cell_order(list("abcdefg"), 5, 1234))
    found["ab order"] = digest(letters_of(ab_order(10)))
    found["poisson"] = digest(poisson(4.5, 1234, n=500))
    found["poisson by duration"] = digest(poisson(4.5, 1234, duration_s=60))
    found["constant"] = digest(constant(7, n=100))
    found["trace"] = digest(trace([0.0, 0.125, 3.3, 3.3]))
    found["burst"] = digest(burst(9))
    lengths = output_lengths_closed(8, 64, 300, 1234, 0.5)
    found["closed lengths"] = digest((lengths.first_tok, lengths.later_tok))
    return found


def test_what_a_seed_decides() -> None:
    assert made() == GOLDEN


@pytest.mark.parametrize("hash_seed", ["0", "1", "77"])
def test_pythons_own_hash_seed_does_not_matter(hash_seed: str) -> None:
    script = "from tests.plan.test_golden import made; print(sorted(made().items()))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=150,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path), "LC_ALL": "C"},
    )  # fmt: skip
    assert done.stdout.strip() == str(sorted(GOLDEN.items()))

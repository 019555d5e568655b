"""Axes of a matrix: what types cannot tell."""

import pytest

from concbench.errors import PlanError
from concbench.plan.file import load_plan

PLAN = """[study]
name = "x"
{study}
[lanes.a]
engine = "llamacpp"
model = "embedded"
[workload]
output_tokens = 8
[sweep]
contexts = {contexts}
concurrency = {levels}
[sweep.vary.a]
parallel = {values}
"""


def plan(tmp_path, *, study="", contexts='["short", 100]', levels="[1, 2]", values="[1, 2]"):
    path = tmp_path / "plan.toml"
    path.write_text(
        PLAN.format(study=study, contexts=contexts, levels=levels, values=values), "utf-8"
    )
    return load_plan(path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"contexts": "[100, 200, 100]"}, ":10: sweep.contexts[2]: 100 is listed twice"),
        ({"contexts": '["short", 50]'}, '50 is listed twice ("short" is as long); keep one'),
        ({"levels": "[1, 2, 1]"}, ":11: sweep.concurrency[2]: 1 is listed twice; keep one"),
        ({"values": '[1, "1"]'}, "sweep.vary.a.parallel[1]: 1 is listed twice; keep one"),
        ({"study": "rounds = 1000000"}, "study.rounds: expected at most 10,000, got 1,000,000"),
        ({"study": f"seed = {1 << 53}"}, "study.seed: expected at most 9,007,199,254,740,991"),
    ],
)
def test_what_is_refused_with_its_place(tmp_path, given, told):
    with pytest.raises(PlanError) as error:
        plan(tmp_path, **given)
    assert told in str(error.value)


def test_what_is_meant_is_taken(tmp_path):
    assert plan(tmp_path, study=f"rounds = 10000\nseed = {(1 << 53) - 1}").sweep.contexts[1] == 100

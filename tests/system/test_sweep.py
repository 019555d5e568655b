"""A sweep over the embedded llama.cpp, whose engine is killed on the way."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from concbench.cli.main import main
from concbench.domain import Round
from concbench.errors import MissingExtra
from concbench.measure.sweep_round import SweepRecorder
from concbench.serve.embedded import embedded_recipe
from concbench.serve.lane import RunningLane
from concbench.store.read import open_study

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

PLAN = """
[study]
name = "embedded"
seed = 3
rounds = 1

[lanes.small]
engine = "llamacpp"
model = "embedded"
flags = { parallel = 2, ctx-size = 512, threads = 1 }

[workload]
output_tokens = 8

[sweep]
contexts = ["short", 200, 400]
concurrency = "auto"
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    try:
        embedded_recipe(1, 256, {})
    except MissingExtra as error:
        pytest.skip(str(error))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)


def test_slots_pool_ceiling_and_a_killed_engine(capsys, monkeypatch):
    Path("plan.toml").write_text(PLAN)
    killed = []
    burst = SweepRecorder.burst

    def lethal(self: SweepRecorder, cell, phase, *given, **named) -> Round:
        if cell.cell == "small.200.c2" and not killed:
            assert self.rig is not None
            assert isinstance(self.rig.running, RunningLane)
            killed.append(self.rig.running.child.pid)
            psutil.Process(killed[0]).send_signal(signal.SIGKILL)
        return burst(self, cell, phase, *given, **named)

    monkeypatch.setattr(SweepRecorder, "burst", lethal)
    words = ["sweep", "plan.toml", "--warmup", "0", "--ceiling", "--quiet", "--out", "s"]
    assert main([*words, "--json", "-"]) in (0, 4)
    result = json.loads(capsys.readouterr().out)
    cells = {cell["cell"]: cell for cell in result["cells"]}
    assert list(cells) == [
        *(f"small.{context}.c{n}" for context in ("short", "200") for n in (1, 2, 3)),
        "small.400.c1",
    ]
    assert cells["small.400.c1"]["outcome"] == "context_rejected"
    del cells["small.400.c1"]
    assert {cell["outcome"] for cell in cells.values()} == {"measured"}
    assert {cell["requests"]["failed"] for cell in cells.values()} == {0}
    sweep = result["payload"]["sweep"]
    marks = {e["cell"]: (e["over_kv"], e["capped"]) for e in sweep["cells"] if e["against"]}
    assert marks == {"small.short.c3": (False, True), "small.200.c3": (True, True)}
    [ceiling] = sweep["ceilings"]
    assert ceiling["declared_tok"] == 248
    assert ceiling["rejected_tok"] - ceiling["accepted_tok"] <= 3
    assert abs(ceiling["accepted_tok"] - 248) <= 8
    crashes = [entry for entry in sweep["failures"] if entry["outcome"] == "crashed"]
    assert [entry["cell"] for entry in crashes] == ["small.200.c2"]
    assert "SIGKILL" in crashes[0]["why"]
    assert crashes[0]["log"]
    assert len(open_study(Path("s")).notes("start")) == 2

"""Studies and rounds for the tests of the store."""

from array import array
from pathlib import Path

from concbench.domain import (
    Cell,
    Events,
    RequestRecord,
    Round,
    RoundInstrument,
    ServerSample,
    TargetFacts,
    Workload,
)
from concbench.store.write import Study, StudyWriter

FACTS = TargetFacts(lane="a", engine="vllm", base_url="http://127.0.0.1:8000", slots=8)


def make_cell(name: str = "a-n2") -> Cell:
    return Cell(cell=name, lane="a", concurrency=2, context_tok=50)


def make_events(requests: int = 2, each: int = 5) -> Events:
    rows = [(r, e) for r in range(requests) for e in range(each)]
    return Events(
        request=array("i", [r for r, _ in rows]),
        read=array("i", [e for _, e in rows]),
        kernel_ns=array("q", [10**15 + 1000 * e + r for r, e in rows]),
        user_ns=array("q", [10**15 + 1000 * e + r + 7 for r, e in rows]),
        kind=array("b", [e % 3 for _, e in rows]),
        tokens=array("f", [1.5] * len(rows)),
    )


def make_round(round_id: str = "r1", **changes: object) -> Round:
    fields: dict[str, object] = {
        "round_id": round_id,
        "cell": make_cell(),
        "index": 0,
        "phase": "measured",
        "workload": Workload(prompt_tokens=50, output_tokens=5, seed=2**40, arrival="burst"),
        "began_utc": "2026-11-29T15:20:00Z",
        "start_ns": 10**15,
        "end_ns": 10**15 + 10**9,
        "requests": [
            RequestRecord(
                index=i, worker=i, due_ns=10**15, sent_ns=10**15 + i, outcome="ok", output_tok=5
            )
            for i in range(2)
        ],
        "events": make_events(),
        "samples": [
            ServerSample(sent_ns=1, received_ns=2, source="metrics", name="running", value=2.0)
        ],
        "instrument": RoundInstrument(
            stamp="kernel", reads=10, read_lateness_ns=[7] * 10, loop_lag_ns=[1, 2]
        ),
    }
    return Round(**(fields | changes))


def create(folder: Path, **changes: object) -> StudyWriter:
    fields: dict[str, object] = {
        "name": "home",
        "command": "burst",
        "argv": ["concbench", "burst"],
        "machine": {"cpu": "x", "cores": 2},
        "tool_version": "0.1.0",
        "seed": 1,
        "plan": {"levels": [1, 2]},
        "targets": {"a": FACTS},
    }
    return Study.create(folder, **(fields | changes))


def finished(folder: Path, rounds: int = 3) -> Path:
    with create(folder) as writer:
        for number in range(rounds):
            writer.write_round(make_round(f"r{number}", index=number))
        writer.finish()
    return folder

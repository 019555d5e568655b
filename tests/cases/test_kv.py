"""Cases K: how many requests, and how much context, an engine really holds."""

from __future__ import annotations

import msgspec

from concbench.analyse.cell import cell_result
from concbench.domain import ServerSample, TargetFacts
from concbench.engines.registry import by_name
from tests.analyse.simulate import MS, S, as_round, steady_stream
from tests.cases.play import Bench, Line, delta, event, playing
from tests.servers import reference_server


def test_k01_context_is_split_over_slots(bench: Bench) -> None:
    llamacpp = by_name("llamacpp")
    split = llamacpp.describe({}, ["llama-server", "-c", "4096", "-np", "4"], [])
    assert split["max_context_tok"].value == 1024
    assert split["slots"].value == 4
    assert split["kv_unified"].value is False
    shared = llamacpp.describe({}, ["llama-server", "-c", "1024"], [])
    assert shared["kv_unified"].value is True
    assert shared["kv_capacity_tok"].value == 1024

    with reference_server("--persona", "llamacpp", "--slots", "4", "--context", "1024") as url:
        run = bench.burst(url, n=2, out=2)
        code, error = bench.refused(
            "burst", url, "--prompt-tokens", "1000", "--output-tokens", "100",
            "--levels", "4", "--out", str(bench.folder / "refused"),
        )  # fmt: skip
    assert run.result["target"]["max_context_tok"] == 1024
    assert run.result["target"]["slots"] == 4
    assert code == 2
    assert "1024" in error
    assert "fewer slots" in error


def test_k01_one_overflow_ends_all(bench: Bench) -> None:
    full = event({"error": {"message": "Context size has been exceeded.", "code": 500}})

    def shared(number: int) -> list[Line]:
        return [(0.01, delta("A")), (0.02, delta("B")), (0.3, full)]

    with playing(shared) as play:
        lost = bench.burst(play.url, n=4, out=20)
    found = lost.doubts["requests_failed"]
    assert lost.cell["requests"]["errors"] == {"in_stream_error": 4}
    assert found["evidence"]["broke_off_together"] >= 2
    assert "one event ended them all" in found["message"]

    def apart(number: int) -> list[Line]:
        return [(0.01, delta("A")), (0.02, delta("B")), (0.1 + 0.4 * number, full)]

    with playing(apart) as play:
        lost = bench.burst(play.url, n=3, out=20)
    assert lost.doubts["requests_failed"]["evidence"]["broke_off_together"] == 0


def samples(running: float, waiting: float, preempted: int) -> list[ServerSample]:
    rows = []
    for k in range(60):
        values = {"running": running, "waiting": waiting, "preemptions": preempted * k / 59}
        for name, value in values.items():
            at = k * 100 * MS
            rows.append(
                ServerSample(sent_ns=at, received_ns=at, source="metrics", name=name, value=value)
            )
    return rows


def test_k02_load_above_what_the_cache_holds() -> None:
    replies = [steady_stream(50 * MS, 60 * MS, 100) for _ in range(72)]
    late = [steady_stream(7 * S, 60 * MS, 100, sent=0) for _ in range(184)]
    round_ = as_round(replies + late, concurrency=256)
    round_ = msgspec.structs.replace(round_, samples=samples(72, 184, 480))
    result, doubts = cell_result([round_])
    found = {doubt.code: doubt for doubt in doubts}
    assert result.server.running_mean == 72
    assert result.server.waiting_max == 184
    assert result.server.preemptions == 480
    assert found["preempted"].evidence["preemptions"] == 480
    assert found["oversubscribed"].evidence["ran_at_most"] == 72
    assert not result.steady.found
    known = TargetFacts(lane="lane", engine="vllm", base_url="http://h", kv_capacity_tok=10_000)
    _, doubts = cell_result([round_], known)
    assert "10,000 tokens" in next(d.message for d in doubts if d.code == "oversubscribed")


def test_k02_a_queue_at_the_start_is_none() -> None:
    replies = [steady_stream(50 * MS, 60 * MS, 100) for _ in range(64)]
    rows = samples(64, 0, 0)
    rows[1] = msgspec.structs.replace(rows[1], value=40.0)
    round_ = msgspec.structs.replace(as_round(replies), samples=rows)
    _, doubts = cell_result([round_])
    assert "oversubscribed" not in {doubt.code for doubt in doubts}

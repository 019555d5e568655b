"""Generators as actors of Ray clusters of two and four nodes on this machine.

Skipped without Ray.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="needs concbench[ray]")

from concbench.cli.main import main  # noqa: E402
from concbench.errors import UsageError  # noqa: E402
from concbench.load.generator import LoadPlan, Progress, RawRound, resolve  # noqa: E402
from concbench.load.ray_workers import run_on_ray  # noqa: E402
from concbench.load.script import Arrivals, Once, Outgoing, Refill  # noqa: E402
from tests.load.server import SSE_HEAD, chunk, serving  # noqa: E402
from tests.load.test_generator import REQUEST, stream_three  # noqa: E402
from tests.load.test_procs import bodies  # noqa: E402
from tests.servers import reference_server  # noqa: E402

pytestmark = [
    pytest.mark.system,
    # Ray's own warnings and left-over files are none of ours.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]

CORES = {"num_cpus": 2, "object_store_memory": 100 << 20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**CORES, "include_dashboard": False})
    made.add_node(**CORES)
    ray.init(address=made.address, log_to_driver=False)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def carried(address: tuple[str, int], scripts: list, **options: object) -> RawRound:
    plan = LoadPlan(peer=resolve(*address, None), scripts=scripts, **options)  # type: ignore[arg-type]
    return run_on_ray(plan)


def test_one_actor_a_node_makes_one_round_on_one_clock(cluster: object) -> None:
    del cluster
    requests = [Outgoing(REQUEST.payload, 3, prompt=k) for k in range(9)]
    with serving(stream_three) as address:
        raw = carried(address, [Once(request) for request in requests])
    assert len(raw.shares) == 2
    assert [r.ending for r in raw.requests] == ["complete"] * 9
    assert [r.number for r in raw.requests] == list(range(9))
    assert [r.prompt for r in raw.requests] == list(range(9))
    # Both nodes are this host, so the clock is the same: what was found apart is the error.
    assert raw.clock_bound_ns is not None
    assert 0 < raw.clock_bound_ns < 50_000_000
    for share in raw.shares:
        assert share.clock is not None
        assert all(abs(offset) <= raw.clock_bound_ns for _, offset in share.clock)
    spread = [(r.sent_ns or 0) - raw.start_ns for r in raw.requests]
    assert max(map(abs, spread)) < 200_000_000
    assert all(b"data: c\n\n\r\n0\r\n\r\n" in body for body in bodies(raw).values())


def test_more_actors_than_nodes_where_asked(cluster: object) -> None:
    del cluster
    with serving(stream_three) as address:
        plan = LoadPlan(peer=resolve(*address, None), scripts=[Once(REQUEST) for _ in range(6)])
        raw = run_on_ray(plan, 3)
    assert len(raw.shares) == 3
    bodies(raw)


def test_an_open_loop_keeps_its_due_times(cluster: object) -> None:
    del cluster
    due_ns = [k * 50_000_000 for k in range(6)]
    arrivals = Arrivals([REQUEST] * 6, due_ns)
    with serving(stream_three) as address:
        raw = carried(address, [arrivals.worker()], arrivals=arrivals)
    found = sorted(r.due_ns - raw.start_ns for r in raw.requests)
    assert raw.clock_bound_ns is not None
    for got, wanted in zip(found, due_ns, strict=True):
        assert abs(got - wanted) <= 2 * raw.clock_bound_ns
    bodies(raw)


def test_a_large_payload_comes_back_in_blocks(cluster: object) -> None:
    del cluster
    event = b"data: " + b"x" * 60_000 + b"\n\n"

    def large(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD)
        for _ in range(200):
            sock.sendall(chunk(event))
        sock.sendall(b"0\r\n\r\n")

    with serving(large) as address:
        raw = carried(address, [Once(REQUEST) for _ in range(2)], spill_bytes=1 << 20)
    assert [body.count(event) for _, body in sorted(bodies(raw).items())] == [200, 200]


def test_a_signal_stops_the_actors_and_what_came_is_kept(cluster: object) -> None:
    del cluster
    release = threading.Event()

    def half(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD + chunk(b"data: a\n\n"))
        release.wait(60)

    def on_tick(progress: Progress) -> None:
        if progress.reads >= 4:
            os.kill(os.getpid(), signal.SIGINT)

    with serving(half) as address:
        raw = carried(address, [Once(REQUEST) for _ in range(4)], on_tick=on_tick)
        release.set()
    assert raw.interrupted
    assert [r.ending for r in raw.requests] == ["stopped"] * 4
    assert all(b"data: a" in body for body in bodies(raw).values())


def test_what_cannot_be_split_and_what_has_no_room_is_said(
    cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cluster
    monkeypatch.setattr("concbench.load.ray_workers.PLACE_S", 5.0)
    with serving(stream_three) as address:
        with pytest.raises(UsageError, match="cannot be split"):
            carried(address, [Refill(iter([REQUEST]))])
        plan = LoadPlan(peer=resolve(*address, None), scripts=[Once(REQUEST) for _ in range(9)])
        with pytest.raises(UsageError, match="no room for 9"):
            run_on_ray(plan, 9)


def test_a_node_that_dies_costs_its_own_requests_and_is_no_hang(cluster: object) -> None:
    extra = cluster.add_node(num_cpus=2, object_store_memory=100 << 20)  # type: ignore[attr-defined]
    cluster.wait_for_nodes()  # type: ignore[attr-defined]
    someone_gone = threading.Event()
    killed = False

    def half(sock: socket.socket, request: bytes, number: int) -> None:
        del request, number
        sock.sendall(SSE_HEAD + chunk(b"data: a\n\n"))
        while not someone_gone.is_set():
            if select.select([sock], [], [], 0.05)[0]:
                someone_gone.set()  # nothing more is sent by a client that lives: it has closed
                return
        sock.sendall(b"0\r\n\r\n")

    def on_tick(progress: Progress) -> None:
        nonlocal killed
        if progress.reads >= 6 and not killed:
            killed = True
            cluster.remove_node(extra, allow_graceful=False)  # type: ignore[attr-defined]

    with serving(half) as address:
        raw = carried(address, [Once(REQUEST) for _ in range(6)], on_tick=on_tick)
    assert [r.lost for r in raw.requests].count(True) == 2
    assert {r.ending for r in raw.requests if r.lost} == {"stopped"}
    assert [r.ending for r in raw.requests if not r.lost] == ["complete"] * 4
    assert len(raw.requests) == 6
    assert not raw.interrupted
    bodies(raw)


def result_of(folder: Path, *words: str) -> dict[str, Any]:
    """Run a command; its result goes to a file, since Ray writes to stdout as well."""
    out = folder.with_suffix(".json")
    main([*words, "--quiet", "--out", str(folder), "--json", str(out)])
    return dict(json.loads(out.read_text()))


def inside(point: float, other: dict[str, float]) -> bool:
    """Whether a value lies in an interval, or within 1 % of it: the clocks' bound is in neither."""
    return 0.99 * other["low"] <= point <= 1.01 * other["high"]


@pytest.mark.parametrize("nodes", [2, 4])
def test_merged_numbers_equal_those_of_one_process(
    cluster: object, nodes: int, tmp_path: Path
) -> None:
    missing = nodes - sum(node["Alive"] for node in ray.nodes())
    for _ in range(missing):
        cluster.add_node(num_cpus=2, object_store_memory=100 << 20)  # type: ignore[attr-defined]
    cluster.wait_for_nodes()  # type: ignore[attr-defined]
    words = ["--levels", "16", "--rounds", "4", "--output-tokens", "80"]
    with reference_server("--ttft-ms", "150", "--itl-ms", "20") as url:
        one = result_of(tmp_path / "one", "burst", url, *words, "--procs", "1")
        many = result_of(tmp_path / "many", "burst", url, *words, "--workers", "ray")
    (alone,), (merged,) = one["cells"], many["cells"]
    assert merged["requests"] == alone["requests"]
    for key in ("output_tok_per_s", "steady_output_tok_per_s"):
        assert inside(merged["client"][key]["point"], alone["client"][key]), key
    assert merged["client"]["ttft_ms"]["p50"] == pytest.approx(
        alone["client"]["ttft_ms"]["p50"], rel=0.05
    )


def test_a_closed_loop_over_nodes_ends_by_its_interval_at_the_true_rate(
    cluster: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del cluster
    monkeypatch.setattr("concbench.analyse.stopping.FIRST_LOOK_S", 1.0)
    words = ["-c", "6", "--output-tokens", "60", "--min-s", "3", "--max-s", "40", "--until", "3%"]
    with reference_server("--ttft-ms", "20", "--itl-ms", "5") as url:
        result = result_of(tmp_path / "study", "sustain", url, *words, "--workers", "ray")
    (cell,) = result["cells"]
    assert cell["ended_by"] == "interval"
    assert cell["client"]["steady_output_tok_per_s"]["point"] == pytest.approx(
        6 * 60 / 0.315, rel=0.05
    )

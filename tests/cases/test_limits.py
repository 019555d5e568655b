"""Cases C: what the client itself can and cannot do."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
from pathlib import Path
from threading import Lock

from concbench.analyse.cell import cell_result
from concbench.load.stream import kind_of
from tests.analyse.simulate import MS, Reply, as_round, steady_stream
from tests.cases.play import Bench, Line, playing, stream


def test_c01_two_hundred_at_once(bench: Bench) -> None:
    lock = Lock()
    inside: list[int] = []

    def script(number: int) -> list[Line]:
        with lock:
            inside.append(number)
        return stream([1.5, 1.51])

    with playing(script) as play:
        run = bench.burst(play.url, n=200, out=2)
    assert run.cell["requests"]["ok"] == 200
    # All were with the server before the first of them was answered: nothing waited for a pool.
    first_answer = min(before for writes in play.writes.values() for before, _, _ in writes)
    at_once = sum(arrived < first_answer for arrived in play.arrived.values())
    assert at_once == 200
    assert run.client["send_delay_ms"]["max"] < 1400
    assert run.client["ttft_ms"]["min"] >= 1499


def limited(files: int, hard: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process whose limit of open files is that."""
    code = (
        "import resource, sys; from concbench.cli.main import main; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {hard})); "
        f"sys.exit(main({list(words)!r}))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)


def test_c02_out_of_file_descriptors(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    words = ["--levels", "120", "--rounds", "1", "--warmup", "0", "--output-tokens", "2", "--quiet"]
    with playing(lambda number: stream([0.02, 0.03])) as play:
        raised = limited(100, hard, "burst", play.url, *words, "--json", "-",
                         "--out", str(tmp_path / "a"))  # fmt: skip
        asked = len(play.bodies)
        refused = limited(100, 150, "burst", play.url, *words, "--out", str(tmp_path / "b"))
        assert len(play.bodies) == asked
    result = json.loads(raised.stdout)
    assert result["cells"][0]["requests"]["ok"] == 120, raised.stderr.decode()
    assert refused.returncode == 2
    assert b"open files" in refused.stderr
    assert b"150" in refused.stderr
    _ours_and_fatal(OSError(errno.EMFILE, "too many open files"))


def test_c03_out_of_ephemeral_ports() -> None:
    _ours_and_fatal(OSError(errno.EADDRNOTAVAIL, "cannot assign requested address"))
    assert kind_of(ConnectionRefusedError(errno.ECONNREFUSED, "refused")) == "connect_refused"


def _ours_and_fatal(error: OSError) -> None:
    """A limit of the client's is counted apart from the server's failures, and voids the run."""
    kind = kind_of(error)
    assert kind == "client_limit"
    lost = Reply(sent=None, end=MS, outcome="failed", extra={"error": kind})
    well = [steady_stream(50 * MS, 10 * MS, 100) for _ in range(9)]
    result, doubts = cell_result([as_round([*well, lost])])
    assert result.requests.errors == {"client_limit": 1}
    found = {doubt.code: doubt for doubt in doubts}
    assert found["client_bound"].severity == "fatal"
    assert found["client_bound"].evidence["client_limit_errors"] == 1


def test_c06_the_clients_own_ceiling(bench: Bench) -> None:
    told = bench.payload("doctor", "--streams", "2,8", "--tok-per-s", "20")["doctor"]
    found = told["calibration"]
    assert [step["streams"] for step in found["steps"]] == [2, 8]
    assert all(step["got_tok_per_s"] > 0 for step in found["steps"])
    with playing(lambda number: stream([0.02 + 0.005 * k for k in range(20)])) as play:
        run = bench.burst(play.url, out=20)
    assert run.cell["instrument"]["ceiling_tok_per_s"] == found["ceiling_tok_per_s"]
    # Near that ceiling a result is the client's own.
    round_ = as_round([steady_stream(50 * MS, 10 * MS, 200)] * 4)
    near, far = (
        {doubt.code: doubt for doubt in cell_result([round_], ceiling_tok_per_s=ceiling)[1]}
        for ceiling in (450.0, 4500.0)
    )
    assert near["client_bound"].severity == "fatal"
    assert "client_bound" not in far


def test_c07_one_client_is_the_ceiling(bench: Bench) -> None:
    slow = {"stamp": "user", "stamped_reads": 0, "loop_lag_ns": [4 * MS] * 100}
    replies = [
        steady_stream(50 * MS, 10 * MS, 200, kernel=False, lateness=4 * MS) for _ in range(8)
    ]
    result, doubts = cell_result([as_round(replies, instrument=slow)])
    found = {doubt.code: doubt for doubt in doubts}
    assert found["client_bound"].severity == "fatal"
    assert result.instrument.loop_lag_ms.p50 == 4
    well, doubts = cell_result([as_round([steady_stream(50 * MS, 10 * MS, 200)] * 8)])
    assert "client_bound" not in {doubt.code for doubt in doubts}
    del well

    with playing(lambda number: stream([0.1 + 0.005 * k for k in range(40)])) as play:
        run = bench.burst(play.url, n=4, out=40)
    instrument = run.cell["instrument"]
    assert instrument["client_cpu"] > 0
    assert instrument["loop_lag_ms"]["n"] >= 1

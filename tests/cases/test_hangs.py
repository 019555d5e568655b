"""Cases H: what is left on disk when something hangs, is stopped, or says odd bytes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from concbench.clock import now_ns, sleep_s
from concbench.store.read import open_study
from tests.cases.play import DONE, Bench, Line, delta, playing, stream, usage
from tests.servers import reference_server


def stored(folder: Path) -> list[str]:
    """The rounds that are on disk in full."""
    return sorted(path.name for path in (folder / "rounds").glob("[0-9]*"))


def test_h01_a_hang_between_stages(bench: Bench) -> None:
    seen: list[str] = []

    def script(number: int) -> list[Line]:
        if number < 3:
            return stream([0.02, 0.03])
        if number == 3:
            seen.extend(stored(bench.folder / "study1"))
        return [(0.0, delta("A")), (2.0, delta("B")), (2.0, DONE)]

    words = ["--levels", "1,2,4", "--rounds", "1", "--warmup", "0", "--output-tokens", "2"]
    with playing(script) as play:
        run = bench("burst", play.url, *words, "--timeout-s", "1")
    # The stages before were on disk while the last one hung; its stragglers ended at the deadline.
    assert len(seen) == 2
    assert len(stored(run.folder)) == 3
    by_level = {cell["concurrency"]: cell["requests"] for cell in run.result["cells"]}
    assert [by_level[n]["ok"] for n in (1, 2, 4)] == [1, 2, 0]
    assert by_level[4]["errors"] == {"timeout": 4}
    assert run.code == 4


@pytest.mark.parametrize("signals", [1, 2])
def test_h02_ctrl_c_keeps_what_was_measured(tmp_path: Path, signals: int) -> None:
    out, result = tmp_path / "study", tmp_path / "result.json"
    words = ["--levels", "2", "--rounds", "60", "--output-tokens", "40", "--quiet"]
    with reference_server("--itl-ms", "5") as url:
        command = [sys.executable, "-m", "concbench", "burst", url, *words, "--out", str(out)]
        with subprocess.Popen(
            [*command, "--json", str(result)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            end_ns = now_ns() + 60_000_000_000
            while len(stored(out)) < 3 and child.poll() is None and now_ns() < end_ns:
                sleep_s(0.02)
            for _ in range(signals):
                child.send_signal(signal.SIGINT)
            began_ns = now_ns()
            _, said = child.communicate(timeout=60)
            took_s = (now_ns() - began_ns) / 1e9
    assert child.returncode == 130, said.decode()
    assert b"Traceback" not in said
    reader = open_study(out)
    assert reader.interrupted
    assert len(reader.rounds()) >= 3
    assert all(reader.load_round(info.round_id) for info in reader.rounds())
    if signals == 1:
        document = json.loads(result.read_bytes())
        assert document["interrupted"] is True
        assert document["cells"][0]["requests"]["ok"] >= 2
    else:
        assert took_s < 15


def test_h03_one_bad_character(bench: Bench) -> None:
    half = b'data: {"choices":[{"index":0,"delta":{"content":"a \\ud835 b"}}]}\n\n'
    broken = b'data: {"error":{"message":"bad \\ud835 glyph","code":500}}\n\n'

    def script(number: int) -> list[Line]:
        if number == 0:
            end = [delta("", "stop"), usage(2), DONE]
            return [(0.0, delta("A")), (0.01, half), *((0.01, data) for data in end)]
        if number == 1:
            return [(0.0, delta("A")), (0.01, broken), (0.01, DONE)]
        return stream([0.01, 0.02])

    with playing(script) as play:
        run = bench.burst(play.url, n=6, out=2)
    counts = run.cell["requests"]
    assert (counts["sent"], counts["ok"], counts["failed"]) == (6, 5, 1)
    records = run.requests()
    assert len(records) == 6
    (failed,) = [record for record in records if record.outcome == "failed"]
    assert "glyph" in (failed.error_detail or "")
    (run.folder / "result.json").read_bytes().decode("utf-8")
    (run.folder / "report.html").read_bytes().decode("utf-8")

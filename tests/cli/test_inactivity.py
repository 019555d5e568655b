"""`--inactivity-s` through the command line: one request that falls silent while others go on."""

from __future__ import annotations

import socket
import threading
from argparse import Namespace
from pathlib import Path

import pytest

from concbench.cli.ab import options_of as ab_options
from concbench.cli.burst import burst_options
from concbench.cli.main import command_parser, main
from concbench.cli.rate import rate_options
from concbench.cli.sides import sides_of
from concbench.cli.sustain import sustain_options
from concbench.measure.sweep_round import asking_of
from concbench.plan.file import load_plan
from tests.cases.play import DONE, Bench, delta, playing, usage
from tests.load.server import SSE_HEAD, chunk


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


def test_a_silent_request_fails_alone_and_is_named(bench: Bench) -> None:
    cut = threading.Event()

    def answer(sock: socket.socket, number: int) -> bool:
        sock.sendall(SSE_HEAD + chunk(delta("A")))
        if number == 0:
            sock.recv(1)  # until the client closes
            cut.set()
            return True
        while not cut.wait(0.02):
            sock.sendall(chunk(delta("B")))
        end = delta("", "length") + usage(8) + DONE
        sock.sendall(chunk(end) + b"0\r\n\r\n")
        return True

    with playing(lambda _: [], answer=answer) as play:
        run = bench.burst(play.url, "--inactivity-s", "2", "--timeout-s", "60", n=3)
        cut.set()
    assert run.code == 4
    counts = run.cell["requests"]
    assert (counts["sent"], counts["ok"], counts["incomplete"]) == (3, 2, 0)
    assert counts["errors"] == {"inactive": 1}
    assert run.cell["outcome"] == "measured"
    found = run.doubts["requests_failed"]
    assert found["severity"] == "fatal"
    assert "inactive × 1" in found["message"]
    assert "1 got no byte for so long" in found["message"]
    assert found["evidence"]["detail"].startswith("no byte for ")
    # The server as a whole was never silent; nor did one event end several.
    assert "stalled" not in run.doubts
    assert found["evidence"]["broke_off_together"] == 0
    (silent,) = [record for record in run.requests() if record.outcome == "failed"]
    assert (silent.error, silent.events) == ("inactive", 1)
    # What it did get counts as received, and in no latency.
    assert run.client["ttft_ms"]["n"] == 2


def test_all_silent_together_is_a_stall(bench: Bench) -> None:
    def answer(sock: socket.socket, number: int) -> bool:
        del number
        sock.sendall(SSE_HEAD)
        for _ in range(20):
            sock.sendall(chunk(delta("A")))
        sock.recv(1)
        return True

    with playing(lambda _: [], answer=answer) as play:
        run = bench.burst(play.url, "--inactivity-s", "2", n=2, out=40)
    assert run.code == 4
    assert run.cell["requests"]["errors"] == {"inactive": 2}
    assert "stalled" in run.doubts


def test_every_command_that_puts_load_on_hands_it_down(tmp_path: Path) -> None:
    def args(*words: str) -> Namespace:
        found = command_parser(words[0]).parse_args([*words[1:], "--inactivity-s", "1.5"])
        found.argv = list(words)
        return found

    url = "http://127.0.0.1:1"
    made = [
        burst_options(args("burst", url), 1, []),
        sustain_options(args("sustain", url, "-c", "2"), 1, []),
        rate_options(args("rate", url, "--rps", "2"), 1, []),
        ab_options(args("ab", url, url), 1, same_server=True),
    ]
    assert [each.inactivity_s for each in made] == [1.5] * 4
    assert [each.asking.inactivity_ns for each in made[:3]] == [1_500_000_000] * 3
    assert args("find", url, "--slo", "ttft_p95=1s").inactivity_s == 1.5

    plan = tmp_path / "plan.toml"
    lanes = f'[lanes.a]\nurl = "{url}"\n[lanes.b]\nurl = "{url}"\n'
    plan.write_text(lanes + "[workload]\ninactivity_s = 2.5\n")
    assert asking_of(load_plan(plan), 50, 1).inactivity_ns == 2_500_000_000
    from_plan = command_parser("ab").parse_args([str(plan)])
    from_plan.argv = ["ab", str(plan)]
    sides_of(from_plan)
    assert from_plan.inactivity_s == 2.5


def test_it_is_a_number_of_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["burst", "http://127.0.0.1:1", "--inactivity-s", "0"]) == 2
    assert "seconds above 0" in capsys.readouterr().err

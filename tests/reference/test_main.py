from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from concbench.errors import PortTaken, UsageError
from concbench.reference.main import parse, run
from tests.reference.client import Client, serving

START = "import sys; from concbench.reference.main import run; sys.exit(run(sys.argv[1:]))"


def start(*argv: str) -> tuple[subprocess.Popen[str], Client]:
    """The server as a child process, and a client of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    hello = json.loads(process.stdout.readline())
    assert hello["pid"] == process.pid
    return process, Client(int(hello["url"].rpartition(":")[2]))


def finish(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(20)
    finally:
        process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(number: signal.Signals):
    process, client = start()
    assert client.chat().complete
    client.close()
    os.kill(process.pid, number)
    assert finish(process) == 0


def test_it_ends_when_stdin_closes():
    process, client = start("--until-stdin-closes", "--ttft-ms", "1")
    assert client.chat().complete
    client.close()
    assert process.stdin is not None
    process.stdin.close()
    assert finish(process) == 0


def test_a_taken_port_is_named():
    with serving() as server, pytest.raises(PortTaken, match=str(server.port)):
        run(["--port", str(server.port)])


def test_options_become_base_units():
    options = parse(
        ["--ttft-ms", "10", "--itl-ms", "2.5", "--max-running", "3", "--model-load-s", "0.5"]
    )
    assert (options.pace.ttft_ns, options.pace.itl_ns) == (10_000_000, 2_500_000)
    assert (options.pace.slots, options.load_ns) == (3, 500_000_000)
    assert options.pace.step_a_ns is None
    assert parse(["--decode-step"]).pace.step_a_ns == 20_000_000
    assert parse(["--step-b-ms", "1"]).pace.step_b_ns == 1_000_000
    assert parse(["--close"]).keep_alive is False


@pytest.mark.parametrize(
    "argv",
    [
        ["--persona", "nobody"],
        ["--ttft-ms", "-1"],
        ["--itl-ms", "nan"],
        ["--itl-ms", "x"],
        ["--jitter", "1"],
        ["--slots", "-1"],
        ["--tokens-per-chunk", "0"],
        ["--fault", "nonsense"],
        ["--decode-step", "--step-a-ms", "0"],
        ["--tls-key", "x"],
        ["--kv-tokens", "100"],
        ["--bogus"],
        ["stray"],
    ],
)
def test_wrong_options_are_usage_errors(argv: list[str]):
    with pytest.raises(UsageError):
        parse(argv)


def test_files_that_are_no_certificate_are_usage_errors():
    with pytest.raises(UsageError, match="tls-cert"):
        run(["--tls-cert", "/nonexistent.pem"])
    with pytest.raises(UsageError, match="--port"):
        run(["--port", "99999"])
    with pytest.raises(UsageError, match="cannot listen"):
        run(["--host", "192.0.2.1"])

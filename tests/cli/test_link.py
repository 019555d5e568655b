import json
import subprocess
import sys

import pytest

from concbench.cli import link
from concbench.cli.main import main
from concbench.cli.stored import stored_result
from concbench.measure import throughput
from concbench.measure.echo import EchoServer
from concbench.report.matrix import matrix_tables
from concbench.store.read import open_study
from tests.measure.test_throughput import run as iperf_run
from tests.store.build import finished


@pytest.fixture
def server():
    found = EchoServer("127.0.0.1", 0)
    yield found
    found.close()


def test_round_trips_shown_written_and_kept(server, tmp_path, capsys):
    study = finished(tmp_path / "s")
    words = ["link", "127.0.0.1", "--name", "lo", "--no-throughput", "--count", "400"]
    words += ["--echo-port", str(server.port), "--into", str(study)]
    assert main([*words, "--json", str(tmp_path / "r.json")]) == 0
    assert "round trip of 16,384 bytes: median" in capsys.readouterr().out
    found = json.loads((tmp_path / "r.json").read_text())["payload"]["link"]
    ms = found["round_trip"]["ms"]
    assert ms["n"] == 400
    assert ms["p50"] <= ms["p99"]
    assert ms["ci"]["p99"] is not None
    (note,) = open_study(study).notes("link")
    assert note["round_trip"] == found["round_trip"]
    assert open_study(study).finished
    (table,) = matrix_tables(stored_result(study).payload)
    assert table.rows[0][0] == "lo"


def test_throughput_there_back_both_and_in_parallel(monkeypatch, capsys):
    def measured(host, port, direction, streams, length_s):
        suffixes = ("", "_bidir_reverse") if direction == "both" else ("",)
        output = json.dumps(iperf_run(suffixes=suffixes)).encode()
        return throughput.parse(output, direction, streams)

    monkeypatch.setattr(throughput, "measure", measured)
    monkeypatch.setattr(throughput, "iperf3_path", lambda: "iperf3")
    assert main(["link", "box", "--no-latency", "--json", "-"]) == 0
    out = capsys.readouterr()
    runs = json.loads(out.out)["payload"]["link"]["throughput"]
    assert [(run["direction"], run["way"], run["streams"]) for run in runs] == [
        ("there", "there", 1),
        ("back", "back", 1),
        ("both", "there", 1),
        ("both", "back", 1),
        ("there", "there", 4),
        ("back", "back", 4),
    ]
    assert runs[0]["gb_per_s"]["n"] == 3
    assert "there" in out.err


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ([], 2, "name the HOST"),
        (["h", "--no-throughput", "--no-latency"], 2, "nothing is left"),
        (["127.0.0.1", "--no-throughput", "--echo-port", "1"], 3, "link --serve"),
        (["h", "--count", "0"], 2, "at least 1"),
    ],
)
def test_what_is_wrong_in_one_line(capsys, words, code, part):
    assert main(["link", *words]) == code
    err = capsys.readouterr().err
    assert part in err
    assert len(err.splitlines()) == 1


def test_without_iperf3_or_torch_nothing_is_begun(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["link", "127.0.0.1"]) == 2
    assert "iperf3 is not installed" in capsys.readouterr().err
    monkeypatch.setattr(link.collective.importlib.util, "find_spec", lambda name: None)
    assert main(["link", "127.0.0.1", "--no-throughput", "--collective"]) == 2
    assert "torch is not installed" in capsys.readouterr().err


def test_the_serving_end_serves_until_it_is_told_to_stop():
    command = [sys.executable, "-m", "concbench", "link", "--serve", "--no-throughput"]
    command += ["--bind", "127.0.0.1", "--echo-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("serving on 127.0.0.1")
        child.terminate()
        assert child.wait(30) == 0

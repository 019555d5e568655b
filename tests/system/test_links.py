"""Real links on one machine: two network namespaces joined by veth, each end shaped by tc's tbf.

The servers run in one namespace, the client in the other. Run by `make test-links`; skipped
without the rights or the tools.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from concbench.cli.main import main
from concbench.measure.links import apply
from concbench.plan.model import LinkPlan
from concbench.store.notes import add_note
from concbench.store.read import open_study
from concbench.store.write import Study

pytestmark = [pytest.mark.links, pytest.mark.timeout(600)]

SERVER_IP, CLIENT_IP = "10.231.77.1", "10.231.77.2"
RATES_GB_PER_S = (0.2, 1.0, 2.5)
TOLERANCE = 0.05
MTU = 9000
"""Large frames, so that headers take 1 % and the payload's rate is nearly the link's."""


@dataclass(frozen=True)
class Pair:
    """Two namespaces and the ends of the cable between them."""

    server: str
    client: str
    server_end: str
    client_end: str

    def argv(self, namespace: str, *words: str) -> list[str]:
        return ["ip", "netns", "exec", namespace, *words]

    def concbench(self, namespace: str, *words: str) -> list[str]:
        return self.argv(namespace, sys.executable, "-m", "concbench", *words)

    def link(self, gb_per_s: float) -> LinkPlan:
        """A link whose own commands set the rate at both ends, and take it off again."""
        burst = max(64_000, round(gb_per_s * 1e9 / 8 * 0.004))
        shape = ["root", "tbf", "rate", f"{gb_per_s * 1000:.0f}mbit"]
        shape += ["burst", str(burst), "latency", "20ms"]
        ends = [(self.server, self.server_end), (self.client, self.client_end)]
        return LinkPlan(
            name=f"{gb_per_s:g}g",
            host=SERVER_IP,
            before=[self.argv(n, "tc", "qdisc", "replace", "dev", e, *shape) for n, e in ends],
            after=[self.argv(n, "tc", "qdisc", "del", "dev", e, "root") for n, e in ends],
        )


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    missing = [tool for tool in ("ip", "tc", "iperf3") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and ip, tc, iperf3 (missing: {', '.join(missing) or 'root'})")
    tag = f"cb{os.getpid()}"
    found = Pair(f"{tag}s", f"{tag}c", f"{tag}v0", f"{tag}v1")
    other = ["type", "veth", "peer", "name", found.client_end, "mtu", str(MTU)]
    try:
        steps = [
            ["ip", "netns", "add", found.server],
            ["ip", "netns", "add", found.client],
            ["ip", "link", "add", found.server_end, "mtu", str(MTU), *other],
            *_end(found, found.server, found.server_end, SERVER_IP),
            *_end(found, found.client, found.client_end, CLIENT_IP),
        ]
        for argv in steps:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"`{' '.join(argv)}`: {done.stderr.strip()}")
        yield found
    finally:
        for name in (found.server, found.client):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", found.server_end], capture_output=True, check=False)


def _end(pair: Pair, namespace: str, end: str, address: str) -> list[list[str]]:
    return [
        ["ip", "link", "set", end, "netns", namespace],
        pair.argv(namespace, "ip", "addr", "add", f"{address}/24", "dev", end),
        pair.argv(namespace, "ip", "link", "set", end, "up"),
        pair.argv(namespace, "ip", "link", "set", "lo", "up"),
    ]


@contextmanager
def child(argv: list[str]) -> Iterator[str]:
    """Start a server, yield its first line, end it."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.wait(30)


def never(text: str) -> bool:
    raise AssertionError("asked")


def measured(pair: Pair, *words: str) -> dict[str, object]:
    argv = pair.concbench(pair.client, "link", SERVER_IP, "--json", "-", *words)
    done = subprocess.run(argv, capture_output=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)["payload"]["link"]
    return found


@pytest.fixture(scope="module")
def serving(pair: Pair) -> Iterator[None]:
    argv = pair.concbench(pair.server, "link", "--serve", "--bind", SERVER_IP)
    with child(argv) as line:
        assert line.startswith("serving on")
        yield


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("gb_per_s", RATES_GB_PER_S)
def test_a_link_has_the_rate_that_it_was_given(pair: Pair, gb_per_s: float) -> None:
    with apply(pair.link(gb_per_s), True, never):
        found = measured(pair, "--seconds", "3", "--streams", "2", "--count", "400")
    for run in found["throughput"]:  # type: ignore[attr-defined]
        if run["direction"] != "both":
            assert run["received_gb_per_s"] == pytest.approx(gb_per_s, rel=TOLERANCE)
    assert found["round_trip"]["ms"]["n"] == 400  # type: ignore[index]


def torch_python() -> Path | None:
    """The Python that has torch: this one, that of CONCBENCH_TORCH_PYTHON, or real vLLM's."""
    beside = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
    named = os.environ.get("CONCBENCH_TORCH_PYTHON")
    found = [Path(one) for one in (sys.executable, named, beside) if one and Path(one).exists()]
    check = "import torch.distributed, msgspec"
    for python in found:
        if subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0:
            return python
    return None


def test_an_all_reduce_over_a_link_takes_what_its_rate_allows(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    python = torch_python()
    if python is None:
        pytest.skip("needs a Python with torch: `make vllm`, or CONCBENCH_TORCH_PYTHON")
    words = ["--collective", "--torch-python", str(python), "--no-throughput"]
    words += ["--message-bytes", "1048576", "--count", "40", "--echo-port", "5302"]
    medians = {}
    with child(pair.concbench(pair.server, "link", "--serve", "--bind", SERVER_IP, *words)) as line:
        assert line.startswith("serving on")
        for gb_per_s in (0.2, 2.5):
            with apply(pair.link(gb_per_s), True, never):
                found = measured(pair, *words)
            told = found["all_reduce"]
            assert (told["bytes"], told["backend"]) == (1_048_576, "gloo")  # type: ignore[index]
            ms = told["ms"]  # type: ignore[index]
            assert ms["n"] == 40
            medians[gb_per_s] = ms["p50"]
            with capsys.disabled():
                sys.stdout.write(
                    f"\nall-reduce of 1 MiB at {gb_per_s:g} Gb/s: median {ms['p50']:.2f} ms"
                )
    # Each side sends a whole message's worth, and both at once: the rate is its lower bound.
    for gb_per_s, median_ms in medians.items():
        assert median_ms > 0.9 * 1_048_576 * 8 / (gb_per_s * 1e9) * 1000
    assert medians[0.2] > 2 * medians[2.5]


@pytest.mark.usefixtures("serving")
def test_two_links_are_compared_in_a_table(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = [pair.link(0.2), pair.link(2.5)]
    serve = pair.concbench(pair.server, "reference", "--host", SERVER_IP, "--ttft-ms", "5")
    notes = {}
    with child([*serve, "--itl-ms", "2", "--slots", "8", "--context", "65536"]) as line:
        url = json.loads(line)["url"]
        for plan in plans:
            with apply(plan, True, never):
                notes[plan.name] = measured(pair, "--name", plan.name, "--seconds", "2")
                for tokens in ("50", "40000"):
                    words = ["burst", url, "--levels", "1,4", "--rounds", "4", "--rounds-max", "4"]
                    words += ["--prompt-tokens", tokens, "--output-tokens", "64", "--quiet"]
                    out = tmp_path / f"{plan.name}-{tokens}"
                    argv = pair.concbench(pair.client, *words, "--out", str(out))
                    assert subprocess.run(argv, check=False).returncode in (0, 4)
    folder = joined(tmp_path, [plan.name for plan in plans])
    for note in notes.values():
        add_note(folder, "link", note)
    assert main(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    with capsys.disabled():
        sys.stdout.write(f"\n{shown}")
    assert "Links as measured" in shown
    assert "Links: 2.5g against 0.2g" in shown
    assert main(["report", str(folder), "--json", "-"]) == 0
    matrix = json.loads(capsys.readouterr().out)["payload"]["matrix"]
    rows = [row for row in matrix["against"] if row["axis"] == "link"]
    assert {(row["context_tok"], row["concurrency"]) for row in rows} == {
        (context, n) for context in (50, 40_000) for n in (1, 4)
    }
    # 160 KB of prompt take 6 ms at 0.2 Gb/s and half a millisecond at 2.5, of a TTFT of some 15 ms.
    ttft = {row["context_tok"]: row["change"] for row in rows if row["metric"] == "ttft_ms"}
    assert ttft[40_000]["relative_pct"] < 0


def joined(tmp_path: Path, names: list[str]) -> Path:
    """One study of the bursts over each link, their cells labelled with it."""
    folder = tmp_path / "links"
    first = open_study(next(tmp_path.glob(f"{names[0]}-*")))
    with Study.create(
        folder,
        name="links",
        command="sweep",
        argv=["sweep"],
        machine=first.record.machine,
        tool_version=first.record.tool_version,
        seed=1,
        plan={"sweep": {"links": names}},
        targets=first.targets(),
    ) as writer:
        for name in names:
            for source in sorted(tmp_path.glob(f"{name}-*")):
                reader = open_study(source)
                for info in reader.rounds():
                    cell = msgspec.structs.replace(
                        info.cell,
                        cell=f"{name}.{info.cell.context_tok}.{info.cell.cell}",
                        link=name,
                    )
                    found = reader.load_round(info.round_id)
                    label = f"{name}.{source.name}.{info.round_id}".replace(".", "_")
                    writer.write_round(msgspec.structs.replace(found, round_id=label, cell=cell))
        writer.finish()
    return folder

"""The parts of a sweep that need no engine: silence, identity, links, the answer's wholeness."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from concbench.errors import NotReady, OutputUnusable
from concbench.load.generator import Progress
from concbench.measure.sweep_identity import check_identity, differences, identity_of
from concbench.measure.sweep_links import CommandLinks, commands_of
from concbench.measure.sweep_round import Silence
from concbench.observe.observer import LiveView
from concbench.plan.file import parse_plan

PLAN = """
[lanes.a]
engine = "vllm"
command = ["vllm", "serve", "m", "--max-num-seqs", "128"]
notes = "words"
[lanes.b]
url = "http://127.0.0.1:2"
[workload]
output_tokens = 16
"""
MACHINE = {"cpu_model": "x", "cpu_count": 2, "kernel": "6", "load_average": 1.0}


def progress(s: float, received: int, in_flight: int = 2) -> Progress:
    return Progress(
        elapsed_ns=int(s * 1e9), in_flight=in_flight, ended=0, reads=0, received_bytes=received
    )


def view(generated: float, running: float = 1.0) -> LiveView:
    return LiveView(
        stamp_ns=0,
        running=running,
        waiting=0.0,
        generated_tok=generated,
        generated_tok_per_s=None,
        scrapes=1,
        skipped=0,
        failed=0,
    )


def test_a_silence_ends_the_round_and_says_so() -> None:
    silence = Silence(10.0, lambda: None)
    assert not silence.tick(progress(0, 5))
    assert not silence.tick(progress(9, 5))
    assert silence.tick(progress(10, 5))
    assert silence.told == "no byte came and no counter moved for 10 s with 2 requests in flight"


def test_a_byte_a_moving_counter_or_nothing_in_flight_is_no_silence() -> None:
    told = [view(1.0)]
    silence = Silence(10.0, lambda: told[0])
    assert not silence.tick(progress(0, 5))
    assert not silence.tick(progress(11, 6))
    told[0] = view(2.0)
    assert not silence.tick(progress(22, 6))
    told[0] = view(2.0, running=2.0)
    assert not silence.tick(progress(33, 6))
    assert not silence.tick(progress(50, 6, in_flight=0))
    assert silence.told is None


def identity(text: str = PLAN, tool: str = "1", **machine: Any) -> dict[str, Any]:
    return identity_of(parse_plan(text, "plan.toml"), {**MACHINE, **machine}, tool, 7, 16)


def test_the_same_plan_on_the_same_machine_is_the_same() -> None:
    words = PLAN.replace('"words"', '"other words"')
    check_identity(identity(), identity(words, load_average=9.0), {"a", "b"})


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (identity(tool="2"), 'tool.version was "1", is "2"'),
        (identity(kernel="7"), 'machine.kernel was "6", is "7"'),
        (
            identity(PLAN.replace("128", "64")),
            'lane a.command[4] was "128", is "64"',
        ),
        (
            identity(PLAN.replace("16", "16\ntemperature = 1")),
            "workload.temperature was 0.0, is 1.0",
        ),
    ],
)
def test_what_changed_is_named(now: dict[str, Any], told: str) -> None:
    with pytest.raises(OutputUnusable) as raised:
        check_identity(identity(), now, {"a", "b"})
    assert told in str(raised.value)
    assert "--out" in str(raised.value)


def test_a_lane_without_records_may_change() -> None:
    check_identity(identity(), identity(PLAN.replace("128", "64")), {"b"})


def test_lists_of_different_length_are_shown_whole() -> None:
    assert differences("x", [1], [1, 2]) == ["x was [1], is [1,2]"]


def links(folder: Path) -> CommandLinks:
    script = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
    quoted = [sys.executable, "-c", script, str(folder / "told")]

    def command(word: str) -> str:
        return "[" + ", ".join(repr(each) for each in [*quoted, word]) + "]"

    text = PLAN + "".join(
        f"[links.{name}]\nbefore = [{command(f'+{name}')}]\nafter = [{command(f'-{name}')}]\n"
        for name in ("x", "y")
    )
    plan = parse_plan(text, "plan.toml")
    assert len(commands_of(plan.links.values())) == 4
    return CommandLinks(plan.links, lambda _: None)


def test_a_link_is_left_before_the_next_is_taken(tmp_path: Path) -> None:
    switch = links(tmp_path)
    switch.use("x")
    switch.use("x")
    switch.use("y")
    switch.close()
    switch.close()
    assert (tmp_path / "told").read_text() == "+x-x+y-y"


def test_a_command_that_fails_is_named() -> None:
    text = PLAN + '[links.x]\nbefore = [["false"]]\n'
    switch = CommandLinks(parse_plan(text, "plan.toml").links, lambda _: None)
    with pytest.raises(NotReady, match="link x: `false` ended with 1"):
        switch.use("x")

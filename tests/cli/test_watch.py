"""`concbench watch`: follows a study that another process writes, shows any stored one, stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from concbench.cli.following import Follower, planned_cells, planned_rounds
from concbench.cli.main import main
from concbench.cli.watch import Studies
from concbench.clock import now_ns, sleep_s
from concbench.store.correct import retract
from concbench.store.now import NowFile
from tests.cli.studies import a_round, alone, create, facts, interleaved

PATIENCE_S = 60
HOSTILE = "<script>alert(1)</script>\"'\n\u202e\u200b\x1b]0;x\x07" + "😀" * 10_000


def until(look: Callable[[], Any], what: str) -> Any:
    """Return the first true value of `look`."""
    end_ns = now_ns() + PATIENCE_S * 10**9
    while now_ns() < end_ns:
        if found := look():
            return found
        sleep_s(0.05)
    raise AssertionError(f"never came: {what}")


@contextmanager
def watching(*words: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "concbench", "watch", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        url = child.stdout.readline().decode().strip()
        try:
            yield url, child
        finally:
            if child.poll() is None:
                child.kill()


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        content: bytes = answer.read()
    return content


Look = Callable[[], dict[str, Any]]
States = Callable[..., Look]


@pytest.fixture
def states() -> Iterator[States]:
    """What makes a look at a study's state; nothing that it started outlives the test."""
    made: list[Studies] = []

    def of(folder: Path, query: dict[str, str] | None = None) -> Look:
        studies = Studies(folder)
        made.append(studies)

        def look() -> dict[str, Any]:
            answer = studies.answer("state.json", query or {})
            assert answer is not None
            assert answer.status == 200, answer.body
            found: dict[str, Any] = json.loads(answer.body)
            return found

        return look

    yield of
    for studies in made:
        studies.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_a_stored_study_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    folder = interleaved(tmp_path / "home", {"a": {1: 50, 4: 150}, "b": {1: 60, 4: 190}}, rounds=2)
    before = sorted(path for path in folder.rglob("*") if "cache" not in path.parts)
    with watching(str(folder)) as (url, child):
        assert url.startswith("http://127.0.0.1:")
        assert b"<script>" in fetched(url)

        def judged() -> Any:
            state = json.loads(fetched(url + "state.json"))
            return state if state["judged"] else None

        state = until(judged, "a judgement")
        assert state["state"] == "finished"
        assert [cell["label"] for cell in state["cells"]] == ["N = 1", "N = 4"] * 2
        assert state["judged"]["rounds"] == 8
        assert state["judged"]["sentence"]
        assert b"</html>" in fetched(url + "report.html")[-40:]
        child.send_signal(number)
        assert child.wait(PATIENCE_S) == 0
        assert child.stderr is not None
        assert b"Traceback" not in child.stderr.read()
    assert sorted(p for p in folder.rglob("*") if "cache" not in p.parts) == before


def test_what_is_judged_when_it_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = alone(tmp_path / "home", "a", [100.0, 101.0])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    follower = Follower(folder)
    assert follower.state([]).judging
    judge = follower._judge
    child, place = judge._child, judge._scratch
    assert child is not None
    assert place.exists()
    follower.close()
    assert child.returncode == -signal.SIGKILL
    assert not place.exists()


def test_it_follows_a_study_while_it_is_written(states: States, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    plan = {"levels": [4, 8], "options": {"rounds": 2}}
    with create(folder, {"a": {}}, command="burst", plan=plan) as writer:
        look = states(folder)
        first = look()
        assert (first["state"], first["done"], first["planned"]) == ("running", 0, 4)
        assert first["left_s"] is None
        writer.write_round(a_round(0, "a", 100.0))
        second = look()
        assert (second["done"], second["last_rounds"][0]["ok"]) == (1, 4)
        assert second["cells"][0]["batch"] != "–"
        assert second["version"] != first["version"]
        writer.write_round(a_round(1, "a", 110.0))
        writer.discard("00000-a.50.c4", "the engine was not yet warm")
        third = look()
        assert third["done"] == 1
        assert {r["phase"] for r in third["last_rounds"]} == {"measured", "discarded"}
        assert "not yet warm" in third["events"][0]
        writer.finish()
    assert look()["state"] == "finished"


def test_it_shows_the_round_that_is_running(
    states: States, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("concbench.store.now.STALE_S", 10.0 * PATIENCE_S)  # however slow it is here
    folder = tmp_path / "home"
    now = NowFile(folder)
    said = {"cell": "a.50.c4", "phase": "measured", "elapsed_s": 3.0, "in_flight": 8, "ended": 1}
    said |= {"asked": 9, "client_tok_per_s": 412.0, "signs": ["stalled: no byte for 3 s"] * 20}
    with create(folder, {"a": {}}, command="burst") as writer:
        look = states(folder)
        assert look()["running"] is None
        now.write(said)
        running = look()["running"]
        assert (running["cell"], running["in_flight"], running["asked"]) == ("a.50.c4", 8, 9)
        assert running["client_tok_per_s"] == 412.0
        assert running["left_s"] is None
        assert 1 <= len(running["signs"]) <= 8
        now.write({**said, "cell": HOSTILE[:200]})
        assert not any(mark in look()["running"]["cell"] for mark in "\n\u202e\u200b\x1b\x07")
        now.write({**said, "in_flight": "many"})
        assert look()["running"] is None
        now.write(said)
        writer.finish()
    assert look()["running"] is None
    now.close()


def test_a_writer_at_full_speed_is_never_in_the_way(states: States, tmp_path: Path) -> None:
    folder, total, failures = tmp_path / "home", 40, []
    writer = create(folder, {"a": {}})

    def write() -> None:
        with writer:
            for place in range(total):
                writer.write_round(a_round(place, "a", 100.0 + place))
            writer.finish()

    thread = threading.Thread(target=write)
    look = states(folder)
    counts = [look()["done"]]
    thread.start()
    while thread.is_alive():
        try:
            counts.append(look()["done"])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            failures.append(error)
            break
    thread.join()
    assert not failures
    assert counts == sorted(counts)
    final = look()
    assert (final["done"], final["state"]) == (total, "finished")


def test_a_round_that_is_being_staged_is_not_seen(states: States, tmp_path: Path) -> None:
    folder = alone(tmp_path / "home", "a", [100.0])
    staged = folder / "rounds" / ".tmp-00001-a.50.c4"
    staged.mkdir()
    (staged / "round.json").write_text("{")
    assert states(folder)()["done"] == 1


def test_names_and_reasons_arrive_as_harmless_text(states: States, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    fields = {"name": HOSTILE, "command": HOSTILE, "targets": {HOSTILE: facts(HOSTILE)}}
    with create(folder, {}, **fields) as writer:
        bad = a_round(0, "a", 100.0)
        cell = msgspec.structs.replace(bad.cell, lane=HOSTILE, link=HOSTILE)
        writer.write_round(
            msgspec.structs.replace(bad, cell=cell, outcome="crashed", outcome_detail=HOSTILE)
        )
        writer.finish()
    retract(folder, "00000-a.50.c4", why=HOSTILE)
    text = json.dumps(states(folder)(), ensure_ascii=False)
    assert len(text) < 12_000
    assert "<script>alert(1)</script>" in text  # as text: the page puts it in with textContent
    assert not any(mark in text for mark in "\n\u202e\u200b\x1b\x07")


def test_a_folder_of_studies_offers_each(states: States, tmp_path: Path) -> None:
    for name in ("20260101T000000Z-one", "20260201T000000Z-<i>two&"):
        alone(tmp_path / "studies" / name, "a", [100.0, 101.0])
    (tmp_path / "studies" / "no study").mkdir()
    alone(tmp_path / "outside", "a", [1.0])
    names = states(tmp_path / "studies")()
    assert names == {"studies": ["20260201T000000Z-<i>two&", "20260101T000000Z-one"]}
    two = states(tmp_path / "studies", {"study": "20260201T000000Z-<i>two&"})()
    assert (two["done"], two["studies"]) == (2, names["studies"])


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    alone(tmp_path / "studies" / "one", "a", [100.0])
    alone(tmp_path / "outside", "a", [1.0])
    studies = Studies(tmp_path / "studies")
    for name in ("../outside", str(tmp_path / "outside"), "..", ".", "", "one/../../outside"):
        assert studies.answer("state.json", {"study": name}) is None
        assert studies.answer("report.html", {"study": name}) is None
    assert studies.answer("../outside/study.json", {}) is None
    assert studies.answer("study.json", {"study": "one"}) is None


def test_a_study_that_breaks_meanwhile_is_said(tmp_path: Path) -> None:
    folder = alone(tmp_path / "home", "a", [100.0])
    studies = Studies(folder)
    (folder / "study.json").write_text("{")
    answer = studies.answer("state.json", {})
    assert answer is not None
    assert answer.status == 409
    assert b"damaged" in answer.body


def test_a_damaged_round_is_shown_as_such(states: States, tmp_path: Path) -> None:
    folder = alone(tmp_path / "home", "a", [100.0, 101.0])
    part = next((folder / "rounds" / "00000-a.50.c4").glob("requests*"))
    part.write_bytes(b"not a table")
    state = states(folder)()
    assert "damaged" in state["last_rounds"][-1]["outcome"]
    assert state["cells"][0]["batch"] != "–"


def test_no_study_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["watch", str(tmp_path)]) == 2
    assert "there is no study in" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--port", "70000"]) == 2
    assert "not a port" in capsys.readouterr().err


def test_the_plan_tells_how_many_rounds_there_are_to_be() -> None:
    burst = {"levels": [1, 2, 4], "options": {"rounds": 4}}
    assert planned_rounds("burst", burst) == 12
    assert planned_rounds("sustain", {"options": {"rounds": 2}}) == 2
    assert planned_rounds("sweep", {"rounds_planned": 96}) == 96
    assert planned_rounds("sweep", {}) is None
    assert planned_rounds("burst", {"options": "?"}) is None
    assert planned_rounds("import", {"options": {"rounds": 4}}) is None


def test_a_sweep_tells_its_rounds_lane_by_lane() -> None:
    lanes = {"a": {}, "b": {}}
    sweep = {"lanes": [], "links": [], "vary": {"b": {"mem": [0.8, 0.9], "seqs": [8, 16, 32]}}}
    plan = {"plan": {"study": {"rounds": 3}, "lanes": lanes, "sweep": sweep}}
    first = {"variant": "a", "link": None, "cells": [{}, {}, {}, {}]}
    assert planned_cells([], plan) is None
    # One of seven starts has listed 4 cells: 7 · 4 · 3 rounds, then as they are.
    assert planned_cells([first, first], plan) == 84
    second = {"variant": "b1", "link": None, "cells": [{}, {}]}
    assert planned_cells([first, second], plan) == 63
    assert planned_cells([first], {"plan": "?"}) is None


def test_the_page_is_served_with_low_priority(tmp_path: Path) -> None:
    folder = alone(tmp_path / "home", "a", [100.0])
    with watching(str(folder)) as (url, child):
        fetched(url)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) > os.getpriority(os.PRIO_PROCESS, 0) or (
            os.getpriority(os.PRIO_PROCESS, child.pid) == 19
        )

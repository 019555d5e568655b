"""`concbench sweep` through its command line, on lanes of the known-truth server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest

from concbench.cli.main import main
from concbench.serve.guard import MARK_VARIABLE
from concbench.store.files import FolderLock
from concbench.store.read import open_study
from tests.serve.processes import all_end
from tests.servers import reference_server

MORTAL = Path(__file__).parent / "mortal_engine.py"
FAST = ["--persona", "vllm", "--port", "{port}", "--ttft-ms", "5", "--itl-ms", "1"]
HEAD = """
[study]
name = "matrix"
seed = 7
rounds = {rounds}
[workload]
output_tokens = 8
[sweep]
contexts = {contexts}
concurrency = {concurrency}
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def reference(*words: str) -> list[str]:
    return [sys.executable, "-m", "concbench", "reference", *FAST, *words]


def mortal(at: int, times: int, words: str, *more: str) -> list[str]:
    deaths = str(Path("deaths").absolute())
    slow = ["--ttft-ms", "500"]  # so that requests sent at once are there at once
    return [sys.executable, str(MORTAL), str(at), str(times), deaths, words, *FAST, *slow, *more]


def lane(name: str, command: list[str]) -> str:
    return f'[lanes.{name}]\nengine = "vllm"\ncommand = {json.dumps(command)}\n'


def write(
    *lanes: str,
    contexts: object = ("short",),
    concurrency: object = (1, 2),
    rounds: int = 1,
    more: str = "",
) -> Path:
    text = HEAD.format(
        rounds=rounds, contexts=json.dumps(contexts), concurrency=json.dumps(concurrency)
    )
    path = Path("plan.toml")
    path.write_text(text + more + "".join(lanes))
    return path


def sweep(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Run a sweep in the folder `s`; return its result. Its exit code may be any that has one."""
    quick = ["--quiet", "--warmup", "0", "--out", "s", "--json", "-"]
    code = main(["sweep", "plan.toml", *quick, *words])
    captured = capsys.readouterr()
    assert code in (0, 4), captured.err
    return json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))


def by_cell(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cell["cell"]: cell for cell in result["cells"]}


def measured(folder: str = "s") -> list[tuple[str, int]]:
    return [(info.cell.cell, info.index) for info in open_study(Path(folder)).rounds("measured")]


def failures() -> list[tuple[str | None, str, bool]]:
    lines = open_study(Path("s")).failures()
    return [(line.cell, line.data["outcome"], line.data["final"]) for line in lines if line.data]


def test_the_dry_run_starts_nothing_and_adds_up(capsys):
    write(lane("a", ["no-such-program"]), contexts=["short", 400], rounds=3)
    assert main(["sweep", "plan.toml", "--dry-run", "--json", "-"]) == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)["payload"]["sweep_plan"]
    assert [row["cell"] for row in rows] == ["a.short.c1", "a.short.c2", "a.400.c1", "a.400.c2"]
    assert [row["prompt_tok"] for row in rows] == [150, 300, 1200, 2400]
    assert [row["output_tok"] for row in rows] == [24, 48, 24, 48]
    assert "4 cells, 12 rounds left, 4,050 prompt and 144 output tokens" in captured.err
    assert "a guess" in captured.err
    assert "answers of 8 tokens leave no steady window (50 decode steps)" in captured.err
    assert not Path("studies").exists()


def test_an_unknown_key_is_refused_with_its_line_and_the_nearest(capsys):
    write(lane("a", reference()), more="")
    text = Path("plan.toml").read_text().replace("concurrency =", "concurrncy =")
    Path("plan.toml").write_text(text)
    line = text.splitlines().index(next(x for x in text.splitlines() if "concurrncy" in x)) + 1
    assert main(["sweep", "plan.toml"]) == 2
    said = capsys.readouterr().err
    assert f"plan.toml:{line}: sweep.concurrncy: unknown key" in said
    assert 'did you mean "concurrency"?' in said


def test_two_lanes_side_by_side_with_their_pool_their_limits_and_a_control(capsys):
    small = reference("--kv-tokens", "300", "--context", "300", "--slots", "4")
    write(
        lane("a", small),
        lane("b", small),
        contexts=["short", 100, 400, 500],
        concurrency="auto",
        rounds=2,
    )
    result = sweep(capsys, "--ceiling")
    cells = by_cell(result)
    short = [c["concurrency"] for c in cells.values() if c["cell"].startswith("a.short")]
    assert short == [1, 2, 4, 5, 8]
    assert {c["rounds"] for c in cells.values() if c["context_tok"] < 300} == {2}
    assert cells["a.400.c1"]["outcome"] == "context_rejected"
    assert cells["a.500.c1"]["outcome"] == "skipped"
    assert "a context of 400 tokens was rejected" in cells["a.500.c1"]["outcome_detail"]
    assert all(c["requests"]["failed"] == 0 for c in cells.values())
    payload = result["payload"]["sweep"]
    over = {entry["cell"]: entry for entry in payload["cells"] if entry["against"]}
    # On a machine that is busy with other things a fatal doubt may stand on any cell: nothing is
    # set against that one, nor it against another.
    fatal = {one["cell"] for one in result["doubts"] if one["severity"] == "fatal"}
    bases = {
        f"{x}.{context}.c{n}": [
            f"{x}.{context}.c{k}" for k in inside if f"{x}.{context}.c{k}" not in fatal
        ]
        for x in "ab"
        for context, n, inside in (("short", 8, (1, 2, 4, 5)), (100, 3, (1, 2)))
    }
    assert {name: entry["against"]["cell"] for name, entry in over.items()} == {
        name: known[-1] for name, known in bases.items() if known and name not in fatal
    }
    (entry,) = [each for each in payload["cells"] if each["cell"] == "a.short.c8"]
    assert (entry["demand_tok"], entry["pool_tok"], entry["over_kv"]) == (464, 300, True)
    assert entry["failures"] == 0
    ratios = {entry["against"]["cell"]: entry["against"] for entry in over.values()}
    assert all(
        against["concurrency_ratio"] == 1.6
        for name, against in ratios.items()
        if name.endswith("short.c5")
    )
    assert [entry["accepted_tok"] for entry in payload["ceilings"]] == [292, 292]
    assert all(293 <= entry["rejected_tok"] <= 295 for entry in payload["ceilings"])
    assert {entry["lane"] for entry in payload["controls"]} == {"a", "b"}
    doubts = {(d["code"], d["cell"]) for d in result["doubts"]}
    assert ("context_rejected", "a.400.c1") in doubts
    order = [name for name, _ in measured() if not name.endswith("control")]
    assert [index for _, index in measured()][:-2] == sorted(i for _, i in measured()[:-2])
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all(x[2:] == y[2:] and x[0] != y[0] for x, y in pairs), order


def test_the_same_command_goes_on_and_a_finished_sweep_has_nothing_left(capsys):
    write(lane("a", reference()))
    first = sweep(capsys)
    before = measured()
    again = sweep(capsys)
    assert measured() == before
    assert [c["requests"] for c in again["cells"]] == [c["requests"] for c in first["cells"]]
    write(lane("a", reference()), concurrency=(1, 2, 3), rounds=2)
    sweep(capsys)
    after = measured()
    assert after[: len(before)] == before
    missing = {("a.short.c1", 1), ("a.short.c2", 1), ("a.short.c3", 0), ("a.short.c3", 1)}
    new = set(after) - set(before)
    assert {step for step in new if not step[0].endswith("control")} == missing
    # What was added needs a control of its own at the end.
    assert after[-1][0].endswith("control")
    assert len([step for step in new if step[0].endswith("control")]) == 1
    assert main(["sweep", "plan.toml", "--out", "s", "--dry-run"]) == 0
    assert "0 rounds left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"--ttft-ms", "5"', '"--ttft-ms", "6"', 'lane a.command[9] was "5", is "6"'),
        ("output_tokens = 8", "output_tokens = 9", "workload.output_tokens was 8, is 9"),
        ("seed = 7", "seed = 8", "workload.seed was 7, is 8"),
    ],
)
def test_what_changed_stops_it_with_nothing_touched(capsys, old, new, told):
    path = write(lane("a", reference()), concurrency=(1,))
    sweep(capsys)
    before = Path("s/log.jsonl").read_bytes()
    path.write_text(path.read_text().replace(old, new))
    assert main(["sweep", "plan.toml", "--out", "s"]) == 2
    assert told in capsys.readouterr().err
    assert Path("s/log.jsonl").read_bytes() == before


def test_another_version_of_the_tool_stops_it(capsys, monkeypatch):
    write(lane("a", reference()), concurrency=(1,))
    sweep(capsys)
    monkeypatch.setattr("concbench.cli.sweep.__version__", "99")
    assert main(["sweep", "plan.toml", "--out", "s"]) == 2
    assert "tool.version was" in capsys.readouterr().err


def test_another_server_behind_the_same_url_stops_it(capsys):
    with reference_server(*FAST[:2], "--model", "first") as url:
        write(f'[lanes.a]\nurl = "{url}"\n', concurrency=(1,))
        sweep(capsys)
        port = url.rpartition(":")[2]
    write(f'[lanes.a]\nurl = "{url}"\n', concurrency=(1, 2))
    with reference_server(*FAST[:2], "--model", "second", "--port", port):
        assert main(["sweep", "plan.toml", "--out", "s"]) == 2
    assert 'lane a.model was "first", is "second"' in capsys.readouterr().err


def test_a_second_sweep_is_refused_while_the_first_writes(capsys):
    write(lane("a", reference()), concurrency=(1,))
    sweep(capsys)
    lock = FolderLock(Path("s"))
    try:
        assert main(["sweep", "plan.toml", "--out", "s"]) == 2
    finally:
        lock.release()
    said = capsys.readouterr().err
    assert re.search(rf"being written by process {os.getpid()} since \d{{4}}-\d\d-\d\dT", said)
    sweep(capsys)


def test_three_crashes_end_a_cell_and_the_sweep_goes_on(capsys):
    write(lane("a", mortal(3, 99, "the last words")), concurrency=(1, 2, 3), rounds=2)
    result = sweep(capsys)
    cells = by_cell(result)
    assert cells["a.short.c3"]["outcome"] == "crashed"
    assert "exit code 1" in cells["a.short.c3"]["outcome_detail"]
    assert [cells[f"a.short.c{n}"]["rounds"] for n in (1, 2, 3)] == [2, 2, 0]
    assert [cells[f"a.short.c{n}"]["outcome"] for n in (1, 2)] == ["measured"] * 2
    assert failures() == [("a.short.c3", "crashed", False)] * 2 + [("a.short.c3", "crashed", True)]
    told = result["payload"]["sweep"]["failures"]
    assert all("the last words" in entry["log"] for entry in told)
    assert "lane_incomplete" in {doubt["code"] for doubt in result["doubts"]}
    assert len(Path("deaths").read_text().splitlines()) == 3
    sweep(capsys)
    assert len(failures()) == 3


def test_a_crash_that_does_not_come_again_leaves_a_measured_cell(capsys):
    write(lane("a", mortal(2, 1, "CUDA out of memory. Tried to allocate")), rounds=2)
    result = sweep(capsys)
    assert [c["outcome"] for c in result["cells"]] == ["measured"] * 2
    assert [c["rounds"] for c in result["cells"]] == [2, 2]
    assert [c["requests"]["failed"] for c in result["cells"]] == [0, 0]
    assert failures() == [("a.short.c2", "oom", False)]


def test_a_lane_that_never_starts_is_an_outcome_beside_one_that_does(capsys):
    dying = mortal(0, 99, "torch.OutOfMemoryError: CUDA out of memory")
    write(lane("bad", dying), lane("good", reference()), concurrency=(1,))
    cells = by_cell(sweep(capsys))
    assert cells["bad.short.c1"]["outcome"] == "oom"
    assert cells["good.short.c1"]["outcome"] == "measured"
    deaths = len(Path("deaths").read_text().splitlines())
    sweep(capsys)
    assert len(Path("deaths").read_text().splitlines()) == deaths
    Path("deaths").write_text("never again\n" * 99)
    cells = by_cell(sweep(capsys, "--retry-failed"))
    assert cells["bad.short.c1"]["outcome"] == "measured"


def test_no_lane_at_all_is_exit_3_and_the_study_tells_why(capsys):
    write(lane("a", mortal(0, 99, "no")), concurrency=(1,))
    assert main(["sweep", "plan.toml", "--quiet", "--out", "s"]) == 3
    assert "lane a" in capsys.readouterr().err
    assert failures() == [("a.short.c1", "crashed", True)]


def test_a_hang_is_an_outcome_and_the_lane_is_started_again(capsys):
    write(lane("a", reference("--fault", "hang=2@every=9")), concurrency=(8,), rounds=1)
    result = sweep(capsys, "--hang-s", "1")
    outcomes = [outcome for _, outcome, _ in failures()]
    assert outcomes
    assert set(outcomes) == {"hung"}
    assert "no byte came and no counter moved" in result["payload"]["sweep"]["failures"][0]["why"]


def test_a_varied_flag_restarts_the_lane_and_repeats_its_first_value_last(capsys):
    vary = "[sweep.vary.a]\nitl-ms = [1, 2]\n"
    path = write(lane("a", reference()), concurrency=(1,), more=vary)
    path.write_text(path.read_text().replace('engine = "vllm"\n', ""))
    result = sweep(capsys)
    assert list(result["targets"]) == ["a[itl-ms=1]", "a[itl-ms=2]", "a[itl-ms=1]~control"]
    launches = [target["launch"] for target in result["targets"].values()]
    paces = [argv[argv.index("--itl-ms") + 1] for argv in launches]
    assert paces == ["1", "2", "1"]
    starts = [note["lane"] for note in open_study(Path("s")).notes("start")]
    assert starts == list(result["targets"])


def test_links_commands_are_shown_and_not_run_unasked(capsys, monkeypatch):
    touch = [sys.executable, "-c", "open('touched', 'a').write('x')"]
    more = f"[links.one]\nbefore = [{json.dumps(touch)}]\nafter = [{json.dumps(touch)}]\n"
    path = write(lane("a", reference()), concurrency=(1,), more=more)
    text = path.read_text().replace("[sweep]", '[sweep]\nlinks = ["one"]')
    path.write_text(text)
    monkeypatch.setattr("sys.stdin", StringIO())
    assert main(["sweep", "plan.toml", "--out", "s"]) == 2
    assert "link one, before: " in capsys.readouterr().err
    assert not Path("touched").exists()
    result = sweep(capsys, "--yes")
    assert Path("touched").read_text() == "xx"
    assert [cell["link"] for cell in result["cells"]] == ["one"]


def engines_of(folder: Path) -> list[psutil.Process]:
    """Return the living engines below this test's state folder."""
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if MARK_VARIABLE in env and env.get("XDG_STATE_HOME") == str(folder / "state"):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_anywhere_it_goes_on_where_it_was(capsys, tmp_path, number):
    write(lane("a", reference("--slots", "4")), concurrency=(1, 2, 4), rounds=3)
    words = ["sweep", "plan.toml", "--out", "s", "--warmup", "0"]
    command = [sys.executable, "-m", "concbench", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        assert child.stderr is not None
        seen = 0
        for line in child.stderr:
            seen += b" ok, " in line
            if seen == 4:
                child.send_signal(number)
                break
        child.stderr.read()
        code = child.wait(60)
    assert code == (-9 if number == signal.SIGKILL else 130)
    assert all_end(engines_of(tmp_path))
    before = measured()
    assert len(before) >= 3
    result = sweep(capsys)
    reader = open_study(Path("s"))
    assert not reader.unreadable
    assert not reader.lost
    done = [(i.cell.cell, i.index) for i in reader.rounds("measured") if not i.interrupted]
    assert len(done) == len(set(done)) == 10
    assert {cell["rounds"] for cell in result["cells"]} == {3}
    assert [c["requests"]["ok"] for c in result["cells"]] == [3, 6, 12]
    assert result["interrupted"] is False


def test_a_study_of_another_command_is_refused(capsys):
    with reference_server(*FAST[:2]) as url:
        burst = ["burst", url, "--levels", "1", "--rounds", "1", "--output-tokens", "8"]
        assert main([*burst, "--out", "s", "--quiet"]) in (0, 4)
    write(lane("a", reference()))
    assert main(["sweep", "plan.toml", "--out", "s"]) == 2
    assert "a study of `burst`" in capsys.readouterr().err


def test_without_out_the_unfinished_study_of_that_name_is_taken_up(capsys):
    write(lane("a", reference()), concurrency=(1,))
    words = ["sweep", "plan.toml", "--quiet", "--warmup", "0"]
    assert main(words) in (0, 4)
    [first] = Path("studies").iterdir()
    log = first / "log.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-1]))  # as a crash before the last line leaves it
    assert main(words) in (0, 4)
    assert list(Path("studies").iterdir()) == [first]
    assert len(measured(str(first))) == 1

"""Keys of a plan that change what a sweep does: rounds at need, prompts of a file, recipes."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.errors import MissingExtra
from concbench.measure import echo, sweep_rounds, throughput
from concbench.measure.sweep_state import PROMPTS_NOTE, standing_of
from concbench.store.read import open_study
from tests.cli.test_sweep import by_cell, lane, measured, reference, sweep, write

TEXTS = [f"Tell me number {n} of the many things that a harbour holds." for n in range(50)]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def edit(old: str, new: str) -> None:
    path = Path("plan.toml")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def indexes() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for cell, index in measured():
        found.setdefault(cell, []).append(index)
    return found


@pytest.mark.parametrize(
    ("half_width", "rounds", "why"), [(1e9, 3, "interval"), (0.0, 4, "rounds_max")]
)
def test_rounds_are_added_until_the_interval_is_narrow(
    capsys, monkeypatch, half_width, rounds, why
):
    monkeypatch.setattr(sweep_rounds, "HALF_WIDTH", half_width)
    write(lane("a", reference()), rounds=2)
    edit("rounds = 2", "rounds = 2\nrounds_max = 4")
    cells = sweep(capsys)["cells"]
    assert [(cell["rounds"], cell["ended_by"]) for cell in cells] == [(rounds, why)] * 2
    names = [name for name, _ in measured()]
    assert names[-1].endswith(".control")
    assert [name.endswith(".control") for name in names].count(True) == 1
    assert [index for _, index in measured()][:-1] == [n for n in range(rounds) for _ in "ab"]
    before = measured()
    again = sweep(capsys)["cells"]
    assert measured() == before
    assert [cell["ended_by"] for cell in again] == [why] * 2


def test_more_rounds_on_another_day_go_on_from_what_is_stored(capsys, monkeypatch):
    write(lane("a", reference()), concurrency=(1, 2), rounds=1)
    assert [cell["ended_by"] for cell in sweep(capsys)["cells"]] == ["rounds_max"] * 2
    monkeypatch.setattr(sweep_rounds, "HALF_WIDTH", 1e9)
    cells = sweep(capsys, "--rounds-max", "9")["cells"]
    assert [(cell["rounds"], cell["ended_by"]) for cell in cells] == [(3, "interval")] * 2
    assert indexes()["a.short.c1"] == [0, 1, 2]
    assert main(["sweep", "plan.toml", "--out", "s", "--dry-run", "--rounds-max", "9"]) == 0
    assert "and up to 8 rounds more for each cell" in capsys.readouterr().out


def prompts(texts: list[str]) -> None:
    Path("texts.txt").write_text("\n".join(texts))


def sent(cell: str) -> list[list[str | None]]:
    reader = open_study(Path("s"))
    infos = [info for info in reader.rounds("measured") if info.cell.cell == cell]
    return [[r.prompt_sha256 for r in reader.load_round(i.round_id).requests] for i in infos]


def test_prompts_of_a_file_are_sent_and_all_lanes_get_the_same(capsys):
    prompts(TEXTS)
    write(lane("a", reference()), lane("b", reference()), concurrency=(1, 3), rounds=2)
    edit('contexts = ["short"]\n', "")
    edit("[workload]", '[workload]\nprompts = "texts.txt"')
    cells = by_cell(sweep(capsys))
    contexts = {cell["context_tok"] for cell in cells.values()}
    assert len(contexts) == 1
    (context,) = contexts
    assert 10 < context < 40
    known = {hashlib.sha256(text.encode()).hexdigest() for text in TEXTS}
    rounds = [sent(f"a.{context}.c{n}") for n in (1, 3)]
    assert [[len(each) for each in cell] for cell in rounds] == [[1, 1], [3, 3]]
    asked = [one for cell in rounds for each in cell for one in each]
    assert set(asked) <= known
    assert len(asked) == len(set(asked))
    assert [sent(f"b.{context}.c{n}") for n in (1, 3)] == rounds
    reader = open_study(Path("s"))
    loaded = [reader.load_round(info.round_id) for info in reader.rounds("measured")]
    assert {each.workload.content for each in loaded} == {"file"}
    before = measured()
    sweep(capsys)
    assert measured() == before
    sweep(capsys, "--rounds", "3")
    assert sent(f"a.{context}.c3")[:2] == rounds[1]
    assert sent(f"a.{context}.c3") == sent(f"b.{context}.c3")


def test_prompts_of_warm_ups_are_on_record_so_that_no_later_start_hands_them_out_again(capsys):
    prompts(TEXTS)
    write(lane("a", reference()), concurrency=(1, 3), rounds=1)
    edit('contexts = ["short"]\n', "")
    edit("[workload]", '[workload]\nprompts = "texts.txt"')
    sweep(capsys, "--warmup", "1")
    reader = open_study(Path("s"))
    rounds = [reader.load_round(info.round_id) for info in reader.rounds()]
    assert {each.phase for each in rounds} == {"warmup", "measured"}
    blocks = reader.notes(PROMPTS_NOTE)
    assert sorted(block["n"] for block in blocks) == sorted(len(each.requests) for each in rounds)
    assert standing_of(reader).next_block == sum(len(each.requests) for each in rounds)


def test_other_prompts_in_the_file_stop_a_study_with_finished_cells(capsys):
    prompts(TEXTS)
    write(lane("a", reference()), concurrency=(1,))
    edit('contexts = ["short"]\n', "")
    edit("[workload]", '[workload]\nprompt_tokens = 60\nprompts = "texts.txt"')
    assert [cell["context_tok"] for cell in sweep(capsys)["cells"]] == [60]
    prompts(TEXTS[1:])
    assert main(["sweep", "plan.toml", "--out", "s"]) == 2
    assert "workload.prompts was" in capsys.readouterr().err


def test_prompts_that_cannot_be_had_or_made_longer_are_refused(capsys):
    write(lane("a", reference()))
    edit('contexts = ["short"]\n', "")
    edit("[workload]", '[workload]\nprompts = "texts.txt"')
    assert main(["sweep", "plan.toml"]) == 2
    assert "texts.txt: cannot read prompts" in capsys.readouterr().err
    prompts(TEXTS)
    assert main(["sweep", "plan.toml", "--ceiling"]) == 2
    assert "--ceiling makes prompts of any length" in capsys.readouterr().err


def test_the_length_of_the_prompts_stands_in_where_no_context_does(capsys):
    write(lane("a", ["no-such-program"]), concurrency=(1,))
    edit('contexts = ["short"]\n', "")
    edit("[workload]", "[workload]\nprompt_tokens = 700")
    assert main(["sweep", "plan.toml", "--dry-run", "--json", "-", "--quiet"]) == 0
    rows = json.loads(capsys.readouterr().out)["payload"]["sweep_plan"]
    assert [(row["cell"], row["context_tok"]) for row in rows] == [("a.700.c1", 700)]


@pytest.mark.parametrize("key", ["same_prompt = true", "stream = false"])
def test_half_a_prompt_is_not_sent_where_it_would_tell_nothing(capsys, key):
    write(lane("a", reference()), contexts=[300], concurrency=(1,))
    sweep(capsys)
    assert "a.300.c1.half" in indexes()
    edit("[workload]", f"[workload]\n{key}")
    assert main(["sweep", "plan.toml", "--out", "t", "--quiet", "--warmup", "0"]) in (0, 4)
    assert {name for name, _ in measured("t")} == {"a.300.c1"}


def test_a_recipe_that_the_lane_does_not_carry_is_told(capsys):
    recipe = 'engine = "vllm"\n[flags]\nkv-cache-dtype = "fp8"\n'
    Path("recipe.toml").write_text(recipe)
    write(lane("a", reference()) + 'reference = "recipe.toml"\n', concurrency=(1,))
    result = sweep(capsys)
    told = [one["message"] for one in result["doubts"] if one["code"] == "lane_incomplete"]
    assert len(told) == 1
    assert "kv-cache-dtype" in told[0]
    Path("recipe.toml").write_text("engine = 1")
    assert main(["sweep", "plan.toml", "--out", "t"]) == 2
    assert "recipe.toml" in capsys.readouterr().err
    assert not Path("t").exists()


def test_workload_keys_reach_the_requests(capsys):
    write(lane("a", reference()), concurrency=(1,))
    more = ["temperature = 0.5", 'endpoint = "completions"', "ignore_eos = false"]
    more += ['content = "code"', "timeout_s = 50", "extra_body = { top_k = 3 }"]
    edit("[workload]", "\n".join(["[workload]", *more]))
    sweep(capsys)
    reader = open_study(Path("s"))
    (info,) = reader.rounds("measured")
    asked = reader.load_round(info.round_id).workload
    assert (asked.temperature, asked.endpoint, asked.content) == (0.5, "completions", "code")
    assert (asked.ignore_eos, asked.extra_body) == (False, {"top_k": 3})


def test_a_lane_has_its_own_environment_and_folder(capsys):
    Path("own").mkdir()
    code = "open('seen','w').write(os.environ['SEEN']); os.execv(sys.argv[1], sys.argv[1:])"
    code = f"import os, sys; {code}"
    command = [sys.executable, "-c", code, *reference()]
    write(lane("a", command) + 'env = { SEEN = "yes" }\ncwd = "own"\n', concurrency=(1,))
    sweep(capsys)
    assert Path("own/seen").read_text() == "yes"


LINK = '[links.lo]\nhost = "127.0.0.1"\n'


def test_a_link_with_a_host_is_measured_where_its_other_end_answers(capsys, monkeypatch):
    server = echo.EchoServer("127.0.0.1", 0)
    monkeypatch.setattr(echo, "PORT", server.port)

    def missing() -> str:
        raise MissingExtra("no iperf3 here")

    monkeypatch.setattr(throughput, "iperf3_path", missing)
    write(lane("a", reference()), concurrency=(1,), more=LINK)
    edit("[sweep]", '[sweep]\nlinks = ["lo"]')
    try:
        result = sweep(capsys)
    finally:
        server.close()
    (note,) = result["payload"]["links"]
    assert (note["link"], note["host"]) == ("lo", "127.0.0.1")
    assert note["round_trip"]["ms"]["n"] == 200
    assert main(["report", "s"]) in (0, 4)
    assert "Links as measured" in capsys.readouterr().out


def test_a_link_whose_other_end_is_silent_is_told_and_the_sweep_goes_on(capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(echo, "PORT", taken.getsockname()[1])
    write(lane("a", reference()), concurrency=(1,), more=LINK)
    edit("[sweep]", '[sweep]\nlinks = ["lo"]')
    assert main(["sweep", "plan.toml", "--warmup", "0", "--out", "s"]) in (0, 4)
    said = capsys.readouterr().err
    assert "link lo itself is not measured" in said
    assert "run `concbench link --serve` on 127.0.0.1" in said
    assert [name for name, _ in measured()] == ["a.lo.short.c1"]

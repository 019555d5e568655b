"""`concbench find`: level after level in one study, to a bracket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from concbench.cli import find
from concbench.cli.main import main
from concbench.store.read import open_study
from tests.analyse.test_capacity import SLO, a_cell
from tests.servers import reference_server

SHORT = ["--max-s", "1", "--min-s", "1", "--output-tokens", "16", "--warmup", "0", "--quiet"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with reference_server("--ttft-ms", "5", "--itl-ms", "2") as url:
        yield url


def test_it_brackets_the_level_in_one_study(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a busy machine measures is not the matter here: levels up to 3 hold.
    told: list[int] = []

    def up_to_three(study: object, rounds: list[object], slos: object) -> bool:
        level: int = rounds[0].cell.concurrency  # type: ignore[attr-defined]
        told.append(level)
        return level <= 3

    monkeypatch.setattr(find, "holds", up_to_three)
    out = tmp_path / "study"
    words = ["--confirm", "0", "--out", str(out), "--json", str(tmp_path / "r.json")]
    assert main(["find", server, *SHORT, *words]) in (0, 4)
    assert told == [1, 2, 4, 3]
    reader = open_study(out)
    assert reader.finished
    assert {info.cell.concurrency for info in reader.rounds("measured")} == {1, 2, 3, 4}
    result = json.loads((tmp_path / "r.json").read_text())
    (series,) = result["payload"]["capacity"]["series"]
    assert [level["concurrency"] for level in series["levels"]] == [1, 2, 3, 4]
    hashes = [
        r.prompt_sha256 for i in reader.rounds() for r in reader.load_round(i.round_id).requests
    ]
    assert len(set(hashes)) == len(hashes)


def test_objectives_that_cannot_be_met_fail_the_first_level(server: str, tmp_path: Path) -> None:
    out = tmp_path / "study"
    words = ["find", server, "--slo", "ttft_p95=1ms", "--from", "2", *SHORT, "--out", str(out)]
    assert main(words) in (0, 4)
    levels = {info.cell.concurrency for info in open_study(out).rounds("measured")}
    assert levels == {1, 2}


@pytest.mark.parametrize(
    ("width", "ttft_ms", "failed", "goes_on"),
    [
        (1.05, 500.0, 0, True),
        (None, 500.0, 0, True),
        (1.05, 1950.0, 0, False),
        (None, 2500.0, 0, False),
        (1.05, 500.0, 2, False),
    ],
)
def test_only_what_may_hold_leads_further(
    monkeypatch: pytest.MonkeyPatch,
    width: float | None,
    ttft_ms: float,
    failed: int,
    goes_on: bool,
) -> None:
    cell = a_cell(4, ttft_ms, width=width, failed=failed)
    result = SimpleNamespace(cells=[cell], doubts=[], targets={})
    monkeypatch.setattr(find, "judge", lambda rounds, facts: result)
    study = SimpleNamespace(facts={})
    assert find.holds(study, [], SLO) is goes_on  # type: ignore[arg-type]


def test_a_range_upside_down_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "http://127.0.0.1:1", "--from", "8", "--to", "4"]) == 2
    assert "--from 8 is above --to 4" in capsys.readouterr().err

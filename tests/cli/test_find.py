"""`concbench find`: level after level in one study, to a bracket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from concbench.analyse.ratecapacity import RateLevel
from concbench.cli import find, find_rate
from concbench.cli.main import main
from concbench.store.read import open_study
from tests.analyse.test_capacity import SLO, a_cell
from tests.cli.reading import drawn_in
from tests.servers import reference_server

BY_RATE = ["--max-s", "1", "--output-tokens", "16", "--warmup", "0", "--quiet"]
SHORT = ["--min-s", "1", *BY_RATE]


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
    assert main(["report", str(out), "--json", str(tmp_path / "again.json")]) == 0
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()
    page = (out / "report.html").read_text()
    assert "Levels against objectives" in page
    assert len(drawn_in(out / "report.html")["timeline"]) == 4
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
    monkeypatch.setattr(find, "judged", lambda study, rounds: result)
    study = SimpleNamespace(facts={})
    assert find.holds(study, [], SLO) is goes_on  # type: ignore[arg-type]


def test_a_range_upside_down_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "http://127.0.0.1:1", "--from", "8", "--to", "4"]) == 2
    assert "--from 8 is above --to 4" in capsys.readouterr().err


def test_the_level_found_is_measured_again_and_given_up_where_it_fails(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def once(study: object, rounds: list[Any], slos: object) -> bool:
        measured = [each for each in rounds if each.phase == "measured"]
        level = measured[0].cell.concurrency
        told.append((level, len(measured)))
        # 4 holds when it is measured alone, and not when two more rounds are with it.
        return level < 4 or (level == 4 and len(measured) == 1)

    monkeypatch.setattr(find, "holds", once)
    words = ["--to", "4", "--confirm", "2", "--out", str(tmp_path / "s")]
    assert main(["find", server, *SHORT, *words]) in (0, 4)
    assert told == [(1, 1), (2, 1), (4, 1), (4, 3), (3, 1), (3, 3)]


def test_rates_are_bracketed_confirmed_and_judged_together(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a busy machine measures is not the matter here: rates up to 40 hold.
    told: list[tuple[float, int]] = []

    def up_to_forty(study: object, rounds: list[Any], slos: object) -> RateLevel:
        rate = rounds[0].cell.rate_rps
        told.append((rate, len(rounds)))
        standing, state = ("holds", "stable") if rate <= 40 else ("fails", "saturated")
        return a_level(rate, standing, state, rounds=len(rounds))

    monkeypatch.setattr(find_rate, "level_of", up_to_forty)
    out, page = tmp_path / "s", tmp_path / "r.json"
    words = ["--by", "rate", "--from", "16", "--duration", "0.5", "--confirm", "2"]
    words += ["--out", str(out), "--json", str(page), "--drain-s", "1"]
    assert main(["find", server, *BY_RATE, *words]) in (0, 4)
    assert told == [(16, 1), (32, 1), (64, 1), (45.3, 1), (38.1, 1), (38.1, 3)]
    (series,) = json.loads(page.read_text())["payload"]["capacity"]["rates"]
    assert [level["rate_rps"] for level in series["levels"]] == [16, 32, 38.1, 45.3, 64]
    assert [level["rounds"] for level in series["levels"]] == [1, 1, 3, 1, 1]
    assert {info.workload.arrival for info in open_study(out).rounds("measured")} == {"constant"}


def test_what_is_too_short_to_tell_is_measured_longer_and_the_short_round_left_out(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def undetermined_first(study: object, rounds: list[Any], slos: object) -> RateLevel:
        told.append(len(rounds[0].requests))
        state = "undetermined" if len(told) == 1 else "stable"
        return a_level(20.0, "holds" if len(told) > 1 else "open", state)

    monkeypatch.setattr(find_rate, "level_of", undetermined_first)
    out = tmp_path / "s"
    words = ["--by", "rate", "--from", "20", "--to", "20", "--duration", "0.5", "--confirm", "0"]
    assert main(["find", server, *BY_RATE, *words, "--max-s", "0.5", "--out", str(out)]) in (0, 4)
    assert told == [10, 20]
    assert len(open_study(out).rounds("measured")) == 1


def a_level(rate: float, standing: str, state: str, rounds: int = 1) -> RateLevel:
    return RateLevel(
        cell="c", rate_rps=rate, sent_rps=rate, rounds=rounds, requests=10, state=state,
        queue_slope_per_s=0.0, completions_per_arrival=1.0, e2e_mean_s=0.1, in_flight=1.0,
        users=1.0, failed_pct=0.0, objectives=[], standing=standing, why="",  # type: ignore[arg-type]
    )  # fmt: skip


def test_nothing_is_sought_below_a_rate_that_the_client_could_not_measure(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def doubted(study: object, rounds: list[Any], slos: object) -> RateLevel:
        told.append(rounds[0].cell.rate_rps)
        return a_level(told[-1], "doubted", "stable")

    monkeypatch.setattr(find_rate, "level_of", doubted)
    words = ["--by", "rate", "--from", "20", "--duration", "0.5", "--out", str(tmp_path / "s")]
    assert main(["find", server, *BY_RATE, *words]) in (0, 4)
    assert told == [20]


def test_a_known_capacity_is_never_exceeded(tmp_path: Path) -> None:
    # 16 at once for 200 + 10 · 20 = 400 ms each: 40 requests a second.
    page = tmp_path / "r.json"
    words = ["--by", "rate", "--from", "64", "--to", "128", "--slo", "ttft_p95=1s"]
    words += ["--duration", "2", "--drain-s", "1", "--max-s", "2", "--output-tokens", "11"]
    words += ["--warmup", "0", "--confirm", "1", "--quiet", "--out", str(tmp_path / "s")]
    with reference_server("--ttft-ms", "200", "--itl-ms", "20", "--slots", "16") as url:
        assert main(["find", url, *words, "--json", str(page)]) in (0, 4)
    (series,) = json.loads(page.read_text())["payload"]["capacity"]["rates"]
    first = next(level for level in series["levels"] if level["rate_rps"] == 64)
    assert first["standing"] in ("fails", "doubted")
    assert first["completions_per_arrival"] < 0.8
    assert series["holds_rps"] is None or series["holds_rps"] <= 42


def test_users_come_in_whole_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "http://127.0.0.1:1", "--from", "1.5"]) == 2
    assert "users come in whole numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--by", "rate", "--until", "1%"], "--until"),
        (["--by", "rate", "--min-s", "3"], "--min-s"),
        (["--poisson"], "--poisson"),
        (["--duration=5s"], "--duration"),
    ],
)
def test_an_option_of_the_other_search_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], option: str
) -> None:
    assert main(["find", "http://127.0.0.1:1", *words]) == 2
    assert f"{option} is of --by" in capsys.readouterr().err


def test_a_rates_rounds_have_every_option_of_the_command(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    real = find_rate.rate

    def spied(session: Any, asked: Any, *rest: Any, **named: Any) -> Any:
        seen.append(asked)
        return real(session, asked, *rest, **named)

    monkeypatch.setattr(find_rate, "rate", spied)
    words = ["--by", "rate", "--from", "20", "--to", "20", "--duration", "0.5", "--confirm", "0"]
    words += ["--inactivity-s", "7", "--timeout-s", "60", "--out", str(tmp_path / "s")]
    assert main(["find", server, *BY_RATE, *words]) in (0, 4)
    assert {(each.inactivity_s, each.timeout_s, each.rps) for each in seen} == {(7, 60, 20)}

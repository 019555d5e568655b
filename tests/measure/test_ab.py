"""A comparison while it runs: order, seeds, restarts, crashes, drift and signals, for real."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from concbench.analyse.driver import headline_rows
from concbench.cli.study import result_of
from concbench.domain import Round, RoundInstrument
from concbench.errors import NotReady, PromptTooLong, Unreachable
from concbench.measure.ab import compare_lanes
from concbench.measure.ab_parts import AbHooks, AbOptions, AbOutcome, Side, lost
from concbench.measure.session import Session
from concbench.measure.target import TargetOptions, ready
from concbench.result import VerdictResult
from concbench.serve.http import Access
from concbench.store.read import StudyReader, open_study
from concbench.store.write import Study, StudyWriter
from tests.cli.studies import a_round
from tests.servers import reference_server

OPTIONS: dict[str, Any] = {
    "levels": [2],
    "contexts": [50],
    "output_tok": 8,
    "content": "prose",
    "seed": 5,
    "rounds": 1,
    "looks": (2,),
}


class Bench:
    """A study being written by a comparison of servers that are started for each run."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.options = AbOptions(**{**OPTIONS, **options})
        self.paces_ms: list[float] = []
        self.said: list[str] = []
        self.told: list[int] = []
        self.rounds: list[Round] = []
        self.on_round: Callable[[Round], None] = lambda _: None
        self.alive: Callable[[], str | None] = lambda: None

    def side(
        self, letter: Any, name: str, pace_ms: Callable[[int], float], *, upkeep: Any = "fresh"
    ) -> Side:
        @contextmanager
        def reach() -> Iterator[Session]:
            self.paces_ms.append(pace_ms(len(self.paces_ms)))
            words = ["--ttft-ms", "5", "--itl-ms", str(self.paces_ms[-1])]
            with (
                reference_server(*words) as url,
                ready(
                    TargetOptions(target=url, access=Access()),
                    slots=1,
                    context_tok=1024,
                    log_folder=self.folder,
                ) as session,
            ):
                session.alive = self.alive
                yield session

        return Side(letter, name, reach, upkeep)

    def run(self, a: Side, b: Side) -> AbOutcome:
        with Study.create(
            self.folder, name="ab", command="ab", argv=["ab"], machine={}, tool_version="0",
            seed=5, plan={"until": None}, targets={},
        ) as writer:  # fmt: skip
            outcome = compare_lanes(a, b, self.options, self.hooks(writer))
            writer.finish(interrupted=outcome.interrupted)
        return outcome

    def hooks(self, writer: StudyWriter) -> AbHooks:
        def on_round(finished: Round) -> None:
            writer.write_round(finished)
            self.rounds.append(finished)
            self.on_round(finished)

        def on_lane(session: Session) -> None:
            writer.targets({session.lane: session.facts})
            writer.note("lane", {"lane": session.lane, "template_tok": session.template_tok})

        return AbHooks(
            on_round=on_round,
            on_discard=writer.discard,
            on_failed=writer.failed,
            on_note=writer.note,
            on_lane=on_lane,
            look=self.look,
            on_pair=lambda pairs, _: self.told.append(pairs),
            say=self.said.append,
        )

    def look(self) -> list[VerdictResult]:
        return result_of(self.folder).verdicts

    @property
    def reader(self) -> StudyReader:
        return open_study(self.folder)


def undecided(row: VerdictResult) -> bool:
    """Whether nothing was decided; a busy machine may void a cell for the client's own lateness."""
    return row.verdict == "inconclusive" or (
        row.verdict == "invalid" and "client_bound" in (row.why or "")
    )


def order(reader: StudyReader) -> str:
    return "".join(str(note["letter"]) for note in reader.notes("ab_run"))


def seeds(reader: StudyReader) -> list[list[int]]:
    infos = {info.round_id: info for info in reader.rounds()}
    return [[infos[name].workload.seed for name in note["rounds"]] for note in _runs(reader)]


def _runs(reader: StudyReader) -> list[dict[str, Any]]:
    return [dict(note) for note in reader.notes("ab_run")]


def test_runs_alternate_and_both_of_a_pair_ask_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", rounds=2, levels=[1, 2])
    a, b = (bench.side(letter, f"lane {letter}", lambda _: 3) for letter in "AB")
    outcome = bench.run(a, b)
    reader = bench.reader
    assert order(reader) == "ABBAA"
    assert (outcome.pairs, outcome.crashes, outcome.interrupted) == (2, 0, False)
    assert bench.told == [1, 2]
    # Every run is a start of its own, and none of its warm-up is compared.
    assert len(bench.paces_ms) == 5
    assert [note["lane"] for note in reader.notes("start")] == [
        "lane A", "lane B", "lane B", "lane A", "lane A",
    ]  # fmt: skip
    infos = {info.round_id: info for info in reader.rounds()}
    runs = _runs(reader)
    assert all(len(run["rounds"]) == 4 for run in runs)
    assert all(infos[name].phase == "measured" for run in runs for name in run["rounds"])
    assert len(reader.rounds("warmup")) == 5 * 2
    asked = seeds(reader)
    assert asked[0] == asked[1]
    assert asked[2] == asked[3]
    assert len({tuple(one) for one in asked}) == 3
    hashes = [[infos[name].workload.prompts_sha256 for name in run["rounds"]] for run in runs]
    assert hashes[0] == hashes[1]
    assert hashes[0] != hashes[2]
    # Both sides go through the levels in the same order.
    levels = [[infos[name].cell.concurrency for name in run["rounds"]] for run in runs]
    assert levels[0] == levels[1]


def test_one_server_on_both_sides_is_not_asked_the_same_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", looks=(1,), same_server=True)
    a, b = (bench.side(letter, f"lane {letter}", lambda _: 2) for letter in "AB")
    bench.run(a, b)
    asked = seeds(bench.reader)
    assert asked[0] != asked[1]


def test_lanes_that_stay_up_are_started_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")
    sides = [bench.side(one, f"lane {one}", lambda _: 2, upkeep="kept") for one in "AB"]
    bench.run(*sides)
    assert len(bench.paces_ms) == 2
    assert [note["lane"] for note in bench.reader.notes("start")] == ["lane A", "lane B"]
    assert result_of(tmp_path / "s").verdicts[0].provisional


def test_the_output_length_is_found_for_both_before_the_first_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", looks=(1,), output_tok=None, levels=[1])
    a = bench.side("A", "a", lambda _: 2)
    bench.run(a, bench.side("B", "b", lambda _: 2))
    lengths = {each.workload.output_tokens for each in bench.rounds if each.phase == "measured"}
    assert len(lengths) == 1
    assert lengths.pop() > 200
    assert len(bench.paces_ms) == 2 + 3


def test_a_prompt_that_cannot_fit_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", output_tok=9000)
    sides = [bench.side(one, one, lambda _: 2) for one in "AB"]
    with pytest.raises(PromptTooLong):
        bench.run(*sides)
    assert bench.rounds == []


def test_a_machine_that_slows_down_gives_no_winner(tmp_path: Path) -> None:
    # Every start is 6 % slower than the one before, whichever side it is: 36 % over the seven.
    bench = Bench(tmp_path / "s", looks=(3,), output_tok=30, levels=[1])
    sides = [bench.side(one, one, lambda start: 8 * 1.06**start) for one in "AB"]
    bench.run(*sides)
    rows = headline_rows(result_of(tmp_path / "s").verdicts)
    assert rows
    assert all(row.verdict in ("drifted", "invalid") for row in rows)
    assert all(row.drift_pct is not None and row.drift_pct < -10 for row in rows)


def test_a_lane_that_crashes_is_started_again_and_its_run_repeated(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", looks=(2,))
    calls = iter(range(100))
    # Asked once a round: the third run's measured round finds the engine dead.
    bench.alive = lambda: "ended by signal 11" if next(calls) == 5 else None
    sides = [bench.side(one, one, lambda _: 2) for one in "AB"]
    outcome = bench.run(*sides)
    reader = bench.reader
    assert outcome.crashes == 1
    assert order(reader) == "ABBAA"
    assert len(bench.paces_ms) == 6
    (lost_round,) = [each for each in bench.rounds if each.outcome == "crashed"]
    assert [info.round_id for info in reader.rounds("discarded")] == [lost_round.round_id]
    assert any("ended by signal 11" in text and "measured again" in text for text in bench.said)
    result = result_of(tmp_path / "s")
    assert result.payload is not None
    (crash,) = result.payload["ab"]["crashes"]
    assert "ended by signal 11" in crash["why"]
    assert headline_rows(result.verdicts)[0].n_pairs == 2


def test_three_crashes_end_it_and_the_study_is_judged_by_what_there_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", looks=(4,))
    calls = iter(range(100))
    bench.alive = lambda: "ended" if next(calls) >= 10 else None
    outcome = bench.run(*(bench.side(one, one, lambda _: 2) for one in "AB"))
    assert (outcome.ended_by, outcome.crashes, outcome.pairs) == ("crashes", 3, 2)
    (row,) = headline_rows(result_of(tmp_path / "s").verdicts)
    assert row.n_pairs == 2
    assert undecided(row)
    assert order(bench.reader) == "ABBAA"


def test_a_lane_that_was_never_reached_is_an_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    @contextmanager
    def nobody() -> Iterator[Session]:
        raise Unreachable("http://nobody: connection refused")
        yield

    with pytest.raises(Unreachable, match="nobody"):
        bench.run(bench.side("A", "a", lambda _: 2), Side("B", "b", nobody, "fresh"))


def test_a_start_that_fails_later_counts_as_a_crash(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", looks=(1,))
    good = bench.side("A", "a", lambda _: 2)
    starts = iter(range(100))

    @contextmanager
    def flaky() -> Iterator[Session]:
        if next(starts) == 1:
            raise NotReady("out of memory")
        with good.reach() as session:
            yield session

    side = Side("A", "a", flaky, "fresh")
    outcome = bench.run(side, bench.side("B", "b", lambda _: 2))
    assert (outcome.crashes, outcome.pairs) == (1, 1)
    assert order(bench.reader) == "ABA"


def test_a_signal_between_rounds_leaves_an_undecided_study(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    def interrupt(finished: Round) -> None:
        if finished.phase == "measured" and finished.cell.lane == "B":
            signal.raise_signal(signal.SIGINT)

    bench.on_round = interrupt
    outcome = bench.run(*(bench.side(one, one, lambda _: 2) for one in "AB"))
    assert (outcome.ended_by, outcome.interrupted, outcome.pairs) == ("interrupt", True, 0)
    result = result_of(tmp_path / "s")
    assert result.interrupted
    assert result.verdicts
    assert all(undecided(row) for row in result.verdicts)
    assert set(outcome.cells.values()) == {"interrupt"}


def test_a_signal_in_the_first_run_still_says_that_nothing_is_decided(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", levels=[1, 2])
    bench.on_round = lambda _: signal.raise_signal(signal.SIGINT)
    assert bench.run(*(bench.side(one, one, lambda _: 2) for one in "AB")).interrupted
    rows = result_of(tmp_path / "s").verdicts
    assert [(row.concurrency, row.verdict, row.why) for row in rows] == [
        (1, "inconclusive", "no pair is complete"),
        (2, "inconclusive", "no pair is complete"),
    ]


def test_no_pair_is_begun_after_the_time_is_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", looks=(9,), max_s=1e-6)
    outcome = bench.run(*(bench.side(one, one, lambda _: 2) for one in "AB"))
    assert (outcome.ended_by, outcome.pairs) == ("max_s", 1)
    assert set(outcome.cells.values()) == {"max_s"}


def test_which_rounds_show_that_a_lane_is_gone() -> None:
    whole = a_round(0, "a", 100.0)
    assert lost(whole) is None
    assert lost(_with(whole, failed=["http_503"] * 4)) is None
    assert lost(_with(whole, failed=["connect_refused"])) is not None
    assert lost(_with(whole, failed=["reset"])) is None
    assert lost(_with(whole, failed=["reset"] * 4)) is not None
    assert lost(_with(whole, outcome="crashed", detail="signal 9")) == "signal 9"
    assert lost(_with(whole, outcome="context_rejected")) is None


def _with(
    round_: Round, *, failed: list[str] | None = None, outcome: Any = "measured",
    detail: str | None = None,
) -> Round:  # fmt: skip
    import msgspec

    kinds = dict(enumerate(failed or ()))
    requests = [
        msgspec.structs.replace(one, outcome="failed", error=kinds[one.index])
        if one.index in kinds
        else one
        for one in round_.requests
    ]
    return msgspec.structs.replace(
        round_, requests=requests, outcome=outcome, outcome_detail=detail,
        instrument=RoundInstrument(stamp="kernel"),
    )  # fmt: skip


def test_every_content_is_a_cell_of_its_own_and_asked_for_as_such(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s", contents=["code", "json"], levels=[1], looks=(1,))
    bench.run(bench.side("A", "a", lambda _: 2.0), bench.side("B", "b", lambda _: 2.0))
    reader = bench.reader
    assert next(iter(reader.notes("ab")))["contents"] == ["code", "json"]
    cells = {info.cell.cell: info for info in reader.rounds("measured")}
    assert set(cells) == {f"{lane}.{kind}.short.c1" for lane in "ab" for kind in ("code", "json")}
    for info in cells.values():
        assert info.workload.content == info.cell.context_label

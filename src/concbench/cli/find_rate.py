"""The largest rate that holds objectives: open loops, bracketed, bisected and confirmed."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

from concbench import __version__
from concbench.analyse.ratecapacity import RateLevel, rate_level
from concbench.analyse.study import StudyFacts, judge
from concbench.cli.live import LiveDisplay
from concbench.cli.rate import rate_options
from concbench.cli.study import OpenStudy
from concbench.domain import Round
from concbench.measure.open import OUTPUT_TOK, rate
from concbench.measure.session import Session
from concbench.plan.levels import Slo
from concbench.plan.prompts import Prompt
from concbench.plan.search import RateSearch
from concbench.result import Result

LEAST_ARRIVALS = 80
"""So many requests a round at least: a 95th percentile has an interval from 72 on."""

LONGER = 2
"""A round that was too short to tell is measured once more, so many times as long."""


def search_rate(
    args: Namespace,
    study: OpenStudy,
    session: Session,
    display: LiveDisplay,
    prompts: list[Prompt],
    slos: list[Slo],
) -> bool:
    """Measure rate after rate, then confirm the one found; return whether a signal ended it.

    A rate that does not hold when it is confirmed counts as failing, and the search goes on below.
    """
    search = RateSearch(args.least, args.most)
    probe = _Probe(args, study, session, display, prompts, slos)
    while True:
        asked = search.next()
        if asked is None:
            asked = search.holds
            if asked is None or not args.confirm or asked in probe.confirmed:
                return False
            probe.confirmed.add(asked)
            level = probe.measured(asked, args.confirm)
        else:
            level = probe.measured(asked, args.rounds)
            if level is not None and goes_longer(level):
                level = probe.measured(asked, args.rounds, LONGER)
        if level is None:
            return True
        if level.standing == "doubted" and search.holds is None:
            display.say(f"{asked:g} req/s: nothing can be said ({level.why}), nor below it")
            return False
        held = goes_on(level, final=asked in probe.confirmed)
        search.tell(asked, held=held)
        display.say(_told(level, args.slo, held=held, final=asked in probe.confirmed))


def goes_on(level: RateLevel, *, final: bool = False) -> bool:
    """Return whether the search goes on above a rate that was just measured.

    It does where the rate holds, and where it is open for want of an interval alone: a confirming
    round gives more requests, and then this is not enough any more.
    """
    if level.standing == "holds":
        return True
    short = all(each.bound is None for each in level.objectives if each.standing == "open")
    stable = level.state == "stable" and level.standing == "open"
    return stable and short and not final


def goes_longer(level: RateLevel) -> bool:
    """Return whether a rate is worth a longer round: nothing is wrong, and it is undetermined."""
    return level.standing == "open" and level.state == "undetermined"


def _told(level: RateLevel, slo: str, *, held: bool, final: bool) -> str:
    """Return what came of a rate, in a line."""
    why = f" ({level.why})" if level.why else ""
    if final:
        came = "confirmed" if held else "not confirmed"
        return f"{level.rate_rps:g} req/s over {level.rounds} rounds: {came}{why}"
    went = "go on above it" if held else "stay below it"
    return f"{level.rate_rps:g} req/s against {slo}: {went}{why}"


class _Probe:
    """Measures rates within one study; rounds of a rate are judged together."""

    def __init__(
        self,
        args: Namespace,
        study: OpenStudy,
        session: Session,
        display: LiveDisplay,
        prompts: list[Prompt],
        slos: list[Slo],
    ) -> None:
        self.args, self.study, self.session = args, study, session
        self.display, self.slos = display, slos
        self.confirmed: set[float] = set()
        self.rounds: dict[float, list[Round]] = {}
        self.count = 0
        # The rate of each round is set when it is measured.
        words = {"rps": 1.0, "trace": None, "output_tokens": args.output_tokens or OUTPUT_TOK}
        self._options = rate_options(Namespace(**{**vars(args), **words}), study.seed, prompts)

    def measured(self, rps: float, rounds: int, longer: float = 1.0) -> RateLevel | None:
        """Measure a rate, in rounds of its own length; None where a signal came.

        The first time a rate is warmed up. Rounds that were too short to tell are replaced by
        longer ones, all others are added to.
        """
        kept = self.rounds.setdefault(rps, [])
        if longer > 1:
            for each in kept:
                self.study.writer.discard(each.round_id, "too short to tell, measured longer")
            kept.clear()
        duration_s = max(self.args.duration, min(LEAST_ARRIVALS / rps, self.args.max_s))
        asked = replace(
            self._options,
            rps=rps,
            rounds=rounds,
            duration_s=longer * duration_s,
            warmup=0 if kept or longer > 1 else self._options.warmup,
        )

        def on_round(finished: Round) -> None:
            self.count += 1
            self.study.keep(finished)
            if finished.phase == "measured":
                kept.append(finished)
            self.display.finished(finished, self.study.facts.get(finished.cell.lane))

        display, look = self.display, self.study.looking(self.display.look)
        campaign = rate(self.session, asked, on_round, look, display.say, done=self.count)
        for cell, why in campaign.ended_by.items():
            self.study.writer.note("ended_by", {"cell": cell, "ended_by": why})
        return None if campaign.interrupted else level_of(self.study, kept, self.slos)


def level_of(study: OpenStudy, rounds: list[Round], slos: list[Slo]) -> RateLevel:
    """Return a rate judged from its rounds so far."""
    result = judged(study, rounds)
    return rate_level(result.cells[0], result.doubts, slos)


def judged(study: OpenStudy, rounds: list[Round]) -> Result:
    """Return what the rounds of one level come to, while the search goes on."""
    facts = StudyFacts(
        tool_version=__version__,
        command="find",
        study=None,
        began_utc="",
        machine={},
        targets=study.facts,
        target_half_width=None,
    )
    return judge(rounds, facts)

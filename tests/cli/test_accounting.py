"""What goes wrong with a server's own accounting gives its doubt, and the right number or none.

Client-side lateness is no subject here: on a busy machine `late_reads`, `late_sends` and
`client_bound` may stand beside any of these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.scripts import SCRIPTS, TRUE_TOK_PER_S, N, play

BUSY = {"client_bound", "late_reads", "late_sends", "user_stamps"}
EXPECTED = {"wide_interval", "single_round"}
"""Of every script: the loops are far too short for the interval that they ask for."""


def near_the_truth(steady: float) -> bool:
    """A busy machine refills late, which the server feels too: less is possible, more is not."""
    return 0.8 * TRUE_TOK_PER_S <= steady <= 1.03 * TRUE_TOK_PER_S


class Told:
    """One played script."""

    def __init__(self, name: str, folder: Path) -> None:
        script = next(script for script in SCRIPTS if script.name == name)
        self.code, result = play(script, folder)
        (self.cell,) = result["cells"]
        self.doubts: dict[str, dict[str, Any]] = {d["code"]: d for d in result["doubts"]}
        self.server = self.cell["server"]
        self.ledger = self.cell["ledger"]
        self.steady = self.cell["client"]["steady_output_tok_per_s"]["point"]

    @property
    def codes(self) -> set[str]:
        """The codes that the script itself explains."""
        return set(self.doubts) - BUSY - EXPECTED

    def nothing_of_the_servers(self) -> None:
        """Assert that no figure rests on the counters, and that the client's own is right."""
        assert self.ledger["generated"] is None
        assert self.ledger["foreign"] is None
        assert self.cell["agreement_pct"] is None
        assert self.server["output_tok_per_s"] is None
        assert self.cell["steady"]["headline"] == "client"


def test_nothing_wrong(tmp_path: Path) -> None:
    told = Told("nothing wrong", tmp_path)
    assert told.codes == set()
    assert near_the_truth(told.steady)
    assert told.server["output_tok_per_s"]["point"] == pytest.approx(told.steady, rel=0.03)
    assert abs(told.ledger["foreign"]) <= N
    assert told.server["preemptions"] == 0
    assert told.server["cached_tok"] == 0


def test_counters_reset_in_mid_run(tmp_path: Path) -> None:
    told = Told("counters reset in mid-run", tmp_path)
    assert told.codes == {"counters_unusable"}
    assert told.doubts["counters_unusable"]["severity"] == "warning"
    assert "began anew" in told.doubts["counters_unusable"]["message"]
    told.nothing_of_the_servers()
    assert near_the_truth(told.steady)


def test_server_restarted(tmp_path: Path) -> None:
    told = Told("server restarted", tmp_path)
    assert told.code == 4
    assert told.doubts["server_restarted"]["severity"] == "fatal"
    assert "counters_unusable" not in told.codes
    assert "requests_failed" in told.codes
    told.nothing_of_the_servers()
    assert told.cell["requests"]["failed"] >= N


def test_two_workers_behind_one_port(tmp_path: Path) -> None:
    told = Told("two workers behind one port", tmp_path)
    assert told.codes == {"counters_unusable"}
    assert "two workers" in told.doubts["counters_unusable"]["message"]
    told.nothing_of_the_servers()
    assert told.server["preemptions"] is None
    assert near_the_truth(told.steady)


def test_foreign_traffic(tmp_path: Path) -> None:
    told = Told("foreign traffic", tmp_path)
    assert told.codes == {"foreign_traffic"}
    # 100 tokens a second from the server's first request on, for about 7 s of loop.
    assert told.ledger["foreign"] == told.ledger["generated"] - told.ledger["received"]
    assert 600 <= told.ledger["foreign"] <= 1100
    assert told.cell["agreement_pct"] is None
    assert told.cell["steady"]["headline"] == "client"
    assert near_the_truth(told.steady)


def test_cache_hits(tmp_path: Path) -> None:
    told = Told("cache hits", tmp_path)
    assert told.codes == {"prompt_cache_hit"}
    hit = told.doubts["prompt_cache_hit"]
    evidence = hit["evidence"]
    # 30 of each prompt's 50 tokens, the template's own taken from both.
    template = evidence["template_tok"]
    share = evidence["cached_tok"] / evidence["prompt_tok"]
    assert share == pytest.approx((30 - template) / (50 - template), rel=0.02)
    assert f"{100 * share:.1f} %" in hit["message"]


def test_a_stall_of_five_seconds(tmp_path: Path) -> None:
    told = Told("a 5 s stall", tmp_path)
    assert told.codes == set()
    wide = told.doubts["wide_interval"]
    assert wide["evidence"]["pause_s"] == pytest.approx(5, abs=0.5)
    assert "No stream got a token for 5." in wide["message"]
    steady = told.cell["client"]["steady_output_tok_per_s"]
    # The pause is in the rate, and the interval is wide enough to say so.
    assert steady["point"] < 0.9 * TRUE_TOK_PER_S
    assert steady["high"] > TRUE_TOK_PER_S
    assert told.cell["agreement_pct"] == pytest.approx(0, abs=2)


def test_preemptions(tmp_path: Path) -> None:
    told = Told("preemptions", tmp_path)
    assert told.codes == {"preempted"}
    assert told.server["preemptions"] == N // 2
    assert near_the_truth(told.steady)

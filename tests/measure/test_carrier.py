"""Who carries the load: as asked, and by the streams where nothing is asked."""

from __future__ import annotations

import sys

import pytest

from concbench.errors import MissingExtra
from concbench.load.generator import LoadPlan, resolve
from concbench.load.script import Once, Refill
from concbench.measure import carrier
from concbench.measure.carrier import Carrier
from tests.load.server import serving
from tests.load.test_generator import REQUEST, stream_three


def test_a_few_streams_stay_in_this_process() -> None:
    with serving(stream_three) as address:
        raw = Carrier().carry(LoadPlan(resolve(*address, None), [Once(REQUEST)] * 1))
    assert not raw.shares
    assert raw.requests[0].ending == "complete"
    raw.log.close()


def test_auto_never_splits_what_cannot_be_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "auto_procs", lambda *_: 2)
    with serving(stream_three) as address:
        peer = resolve(*address, None)
        whole = Carrier().carry(LoadPlan(peer, [Refill(iter([REQUEST] * 2))]))
        split = Carrier().carry(LoadPlan(peer, [Once(REQUEST), Once(REQUEST)]))
    assert not whole.shares
    assert len(split.shares) == 2
    for share in split.shares:
        share.open_log().close()


def test_a_stall_is_passed_on_and_makes_the_loop_late() -> None:
    with serving(stream_three) as address:
        plan = LoadPlan(resolve(*address, None), [Once(REQUEST, 250_000_000)])
        raw = Carrier(1, stall=(80_000_000, 90_000_000)).carry(plan)
    assert max(raw.loop_lag_ns) > 20_000_000
    raw.log.close()


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with serving(stream_three) as address:
        plan = LoadPlan(resolve(*address, None), [Once(REQUEST)])
        with pytest.raises(MissingExtra, match=r"concbench\[ray\]"):
            Carrier(workers="ray").carry(plan)

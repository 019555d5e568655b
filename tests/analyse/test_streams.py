from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.analyse.streams import (
    e2e_ns,
    icl_ns,
    itl_ns,
    pooled,
    received_tok,
    samples,
    starts_of,
    streams_of,
    times_of,
    tokens_of,
    tpot_ns,
    ttft_ns,
)
from concbench.domain import KIND_REASONING, Events
from tests.analyse.simulate import MS, Reply, S, as_round, steady_stream


def only(reply: Reply, **fields):
    return streams_of(as_round([reply], **fields))[0]


def felt(*replies: Reply, streaming: bool = True, buffered: bool = False):
    return samples(streams_of(as_round(replies)), streaming=streaming, buffered=buffered)


def test_kernel_stamp_counts_where_there_is_one():
    stamped = only(Reply(times=[10 * MS, 20 * MS], lateness=3 * MS))
    assert stamped.times_ns.tolist() == [10 * MS, 20 * MS]
    assert stamped.lateness_ns.tolist() == [3 * MS, 3 * MS]
    unstamped = only(Reply(times=[10 * MS, 20 * MS], lateness=3 * MS, kernel=False))
    assert unstamped.times_ns.tolist() == [13 * MS, 23 * MS]


def test_mixed_stamps_never_go_backwards():
    round_ = as_round([Reply(times=[10 * MS, 20 * MS], lateness=15 * MS)])
    round_.events.kernel_ns[0] = 0
    stream = streams_of(round_)[0]
    # Ours of the first event is 25 ms, yet the second had arrived at 20.
    assert stream.times_ns.tolist() == [20 * MS, 20 * MS]


def test_record_stamps_stand_in_without_events():
    reply = steady_stream(100 * MS, 10 * MS, 20)
    round_ = as_round([reply])
    bare = msgspec.structs.replace(round_, events=Events())
    kept, lost = streams_of(round_)[0], streams_of(bare)[0]
    assert ttft_ns(lost) == ttft_ns(kept) == 100 * MS
    assert tpot_ns(lost) == tpot_ns(kept) == 10 * MS
    assert icl_ns(lost).size == 0


def test_reasoning_counts_for_ttft_and_not_for_ttfo():
    """S14."""
    found = felt(
        Reply(times=[300 * MS, 400 * MS, 6 * S], kinds=[KIND_REASONING, KIND_REASONING, 0]),
        Reply(times=[300 * MS, 400 * MS], kinds=[KIND_REASONING] * 2),
    )
    assert found.ttft_ms.tolist() == [300, 300]
    assert found.ttfo_ms.tolist() == [6000]


def test_from_due_includes_the_send_delay():
    found = felt(Reply(times=[150 * MS, 250 * MS], sent=100 * MS, due=60 * MS))
    assert found.send_delay_ms.tolist() == [40]
    assert (found.ttft_ms.tolist(), found.ttft_from_due_ms.tolist()) == ([50], [90])
    assert (found.e2e_ms.tolist(), found.e2e_from_due_ms.tolist()) == ([150], [190])


def test_one_token_has_no_tpot_and_keeps_its_latencies():
    """D01."""
    found = felt(Reply(times=[200 * MS]))
    assert found.tpot_ms.size == found.icl_ms.size == 0
    assert (found.ttft_ms.tolist(), found.e2e_ms.tolist()) == ([200], [200])


def test_all_at_one_stamp_is_undefined_and_not_zero():
    """D05."""
    assert tpot_ns(only(Reply(times=[200 * MS] * 20))) is None


def test_first_event_with_all_tokens_falls_back_to_an_even_share():
    stream = only(Reply(times=[0, S], tokens=[20, 0.0], extra={"output_tok": 20}))
    assert tpot_ns(stream) == S / 10


def test_short_answers_give_no_rate():
    found = felt(steady_stream(100 * MS, 10 * MS, 15), steady_stream(100 * MS, 10 * MS, 16))
    assert found.tpot_ms.tolist() == [10]
    assert found.per_request_tok_per_s.tolist() == [16 / 0.25]
    assert found.ttft_ms.size == 2


def test_impossible_stamps_are_left_out_and_counted():
    """D04: a first token that was never set is no latency of −1.7e12 ms."""
    found = felt(Reply(times=[1, 2], sent=10 * S), steady_stream(100 * MS, 10 * MS, 20))
    assert found.impossible == 1
    assert found.ttft_ms.tolist() == [100]
    assert found.e2e_ms.size == 1


def test_failures_are_in_no_latency():
    found = felt(
        steady_stream(100 * MS, 10 * MS, 20),
        steady_stream(1 * MS, 1 * MS, 20, outcome="failed", due=-5 * MS),
    )
    assert found.e2e_ms.tolist() == [290]
    assert sorted(found.send_delay_ms.tolist()) == [0, 5]


def test_without_streaming_only_whole_latencies():
    """D08."""
    found = felt(Reply(times=[900 * MS], tokens=[40], end=1000 * MS), streaming=False)
    assert found.ttft_ms.size == found.icl_ms.size == found.tpot_ms.size == 0
    assert found.e2e_ms.tolist() == [1000]
    assert found.per_request_tok_per_s.tolist() == [40]
    whole = Reply(times=[900 * MS], tokens=[40], end=1000 * MS, extra={"notes": ("not_streamed",)})
    assert felt(whole).ttft_ms.size == 0


def test_nothing_at_all():
    assert streams_of(as_round([])) == []
    found = pooled([])
    assert found.ttft_ms.size == 0
    assert felt(Reply(outcome="failed", sent=None)).e2e_ms.size == 0


def test_tokens_of_a_cut_stream_are_received():
    reply = steady_stream(0, MS, 30, outcome="failed", extra={"output_tok": 0})
    assert received_tok(only(reply)) == 30


STREAMS = st.lists(
    st.tuples(
        st.integers(0, 5 * S),
        st.lists(st.tuples(st.integers(0, 50 * MS), st.integers(1, 4)), min_size=1, max_size=30),
    ),
    min_size=1,
    max_size=6,
)


def replies_of(drawn, shift: int = 0):
    made = []
    for number, (sent, events) in enumerate(drawn):
        times = (sent + shift + np.cumsum([gap for gap, _ in events])).tolist()
        tokens = [count for _, count in events]
        made.append(
            Reply(times=times, tokens=tokens, sent=sent + shift, due=sent + shift, worker=number)
        )
    return made


@given(STREAMS, st.integers(0, 10**15))
def test_shifting_all_stamps_changes_no_interval(drawn, shift):
    before = felt(*replies_of(drawn))
    after = felt(*replies_of(drawn, shift))
    for name in before.__slots__:
        assert np.array_equal(getattr(before, name), getattr(after, name))


@given(STREAMS)
def test_gaps_add_up_to_last_minus_first(drawn):
    for stream in streams_of(as_round(replies_of(drawn))):
        assert int(icl_ns(stream).sum()) == (stream.last_ns or 0) - (stream.first_ns or 0)
        later = stream.tokens[1:]
        assert float((itl_ns(stream) * later).sum()) == pytest.approx(float(icl_ns(stream).sum()))
        assert 0 <= (ttft_ns(stream) or 0) <= (e2e_ns(stream) or 0)


def test_gaps_of_many_streams_are_those_of_each():
    replies = [
        Reply(),
        steady_stream(0, 10 * MS, 5),
        Reply(times=[7 * MS]),
        Reply(),
        Reply(times=[3 * MS, 3 * MS, 9 * MS], tokens=[1, 0, 4]),
        steady_stream(2 * S, 30 * MS, 3),
    ]
    streams = streams_of(as_round(replies))
    assert times_of(streams).size == tokens_of(streams).size == 12
    assert starts_of(streams).tolist() == [0, 5, 6, 9]
    assert icl_ns(*streams).tolist() == [gap for s in streams for gap in icl_ns(s).tolist()]
    assert itl_ns(*streams).tolist() == [gap for s in streams for gap in itl_ns(s).tolist()]
    assert icl_ns().size == itl_ns().size == starts_of([]).size == 0


@pytest.mark.parametrize("first", [0, 70_000], ids=["16 bits", "32 bits"])
@pytest.mark.parametrize("turned", [False, True], ids=["as they came", "turned round"])
def test_events_are_put_in_order_of_request_and_read(first, turned):
    rows = [(first + k % 3, k // 3, 1_000 + 10 * k) for k in range(12)]
    events = Events()
    for request, read, at in reversed(rows) if turned else rows:
        events.request.append(request)
        events.read.append(read)
        events.kernel_ns.append(at)
        events.user_ns.append(at + 5)
        events.kind.append(0)
        events.tokens.append(1.0)
    round_ = as_round([Reply(times=[1 * MS])] * 3)
    records = [msgspec.structs.replace(r, index=first + r.index) for r in round_.requests]
    found = streams_of(msgspec.structs.replace(round_, requests=records, events=events))
    assert [stream.times_ns.tolist() for stream in found] == [
        [1_000 + 10 * k for k in range(start, 12, 3)] for start in range(3)
    ]

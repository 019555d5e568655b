import json

from hypothesis import given
from hypothesis import strategies as st

from concbench.engines.registry import ENGINES
from concbench.observe.parse import samples, scrape_cost
from concbench.observe.spool import KINDS, RawSample

MS = 1_000_000
PAGE = b"vllm:generation_tokens_total %d\nvllm:num_requests_running 4\n"


def metrics(at_ms: int, tokens: int, took_ms: int = 2) -> RawSample:
    body = PAGE % tokens
    return RawSample("metrics", at_ms * MS, (at_ms + took_ms) * MS, 200, body)


def test_the_rate_of_a_known_counter():
    records = [metrics(250 * step, 1000 + 50 * step) for step in range(9)]
    rows = [r for r in samples(records, ENGINES["vllm"]) if r.name == "generated_tok"]
    first, last = rows[0], rows[-1]
    took_s = (last.sent_ns - first.sent_ns) / 1e9
    assert (last.value - first.value) / took_s == 200.0
    assert all(
        (r.source, r.labels, r.received_ns - r.sent_ns) == ("metrics", "", 2 * MS) for r in rows
    )


def test_slots_and_counter_make_one_exact_counter():
    def llamacpp(at, ended, running):
        slots = [
            {"is_processing": True, "id_task": task, "next_token": [{"n_decoded": tokens}]}
            for task, tokens in running.items()
        ]
        page = b"llamacpp:tokens_predicted_total %d\n" % ended
        return [
            RawSample("metrics", at, at + 1, 200, page),
            RawSample("slots", at + 2, at + 3, 200, json.dumps(slots).encode()),
        ]

    records = [*llamacpp(0, 100, {}), *llamacpp(10, 100, {1: 6, 2: 7}), *llamacpp(20, 164, {2: 20})]
    rows = samples(records, ENGINES["llamacpp"])
    exact = [r.value for r in rows if r.name == "generated_tok"]
    assert exact == [100, 113, 184]
    assert [r.value for r in rows if r.name == "generated_tok_at_end"] == [100, 100, 164]
    # A failed reading of the counter leaves the slots' own.
    lone = [records[0], records[3], records[5]]
    live = [r for r in samples(lone, ENGINES["llamacpp"]) if r.source == "slots"]
    assert [r.value for r in live if r.name == "generated_tok_live"] == [0, 13]


def test_failures_and_notes_are_events():
    records = [
        RawSample("metrics", 1, 2, 0, b"timeout"),
        RawSample("slots", 3, 4, 503, b"busy"),
        RawSample("note", 5, 5, 200, b"restarted"),
        RawSample("note", 6, 6, 200, b"started"),
        RawSample("note", 7, 7, 200, b"lost"),
    ]
    rows = samples(records, ENGINES["vllm"])
    assert [(r.name, r.source, r.labels, r.value) for r in rows] == [
        ("event", "metrics", "scrape_failed", 0.0),
        ("event", "slots", "scrape_failed", 503.0),
        ("event", "observer", "observer_restarted", None),
        ("event", "observer", "observer_lost", None),
    ]


def test_the_machines_readings():
    body = json.dumps([["cpu_busy_cores", "", 1.5], ["scrapes", "", 9.0], ["odd"], 7]).encode()
    rows = samples([RawSample("host", 1, 2, 200, body)], ENGINES["vllm"])
    assert [(r.source, r.name, r.value) for r in rows] == [
        ("host", "cpu_busy_cores", 1.5),
        ("observer", "scrapes", 9.0),
    ]


def test_what_polling_costs():
    cost = scrape_cost(
        [metrics(0, 1, 2), metrics(9, 1, 4), RawSample("metrics", 0, 1, 0, b"reset")]
    )
    assert (cost.scrapes, cost.failed, cost.mean_ms, cost.p50_ms, cost.max_ms) == (2, 1, 3, 2, 4)
    assert cost.page_bytes == 2 * len(PAGE % 1)
    assert scrape_cost([]).mean_ms is None


@given(
    st.lists(
        st.builds(
            RawSample,
            kind=st.sampled_from(KINDS),
            sent_ns=st.integers(0, 1 << 40),
            received_ns=st.integers(0, 1 << 40),
            status=st.sampled_from([0, 200, 503]),
            body=st.binary(max_size=60)
            | st.sampled_from([b"[]", b"{}", b'{"data": [1]}', b'[["a", "b", null]]', PAGE % 3]),
        ),
        max_size=8,
    ),
    st.sampled_from(sorted(ENGINES)),
)
def test_any_records_give_rows_in_order(records, engine):
    rows = samples(records, ENGINES[engine])
    assert [r.received_ns for r in rows] == sorted(r.received_ns for r in rows)


def test_a_page_of_which_nothing_is_known_is_an_event():
    page = RawSample("metrics", 1, 2, 200, b"other_total 3\nanother 4\n")
    rows = samples([page, metrics(10, 5)], ENGINES["vllm"])
    assert not [row for row in rows if row.name == "event"]
    (row,) = samples([page, page], ENGINES["vllm"])
    assert (row.name, row.labels, row.source, row.value) == ("event", "log_unparsed", "metrics", 2)
    empty = RawSample("metrics", 1, 2, 200, b"")
    assert samples([empty], ENGINES["vllm"]) == []

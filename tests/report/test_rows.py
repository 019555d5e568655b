from concbench.domain import Doubt, Summary
from concbench.report import rows
from concbench.report.headline import headline
from concbench.result import Requests, Steady
from tests.report.conftest import burst, cell, estimate


def table(cells, doubts=()):
    return rows.table_of(cells, doubts)


def test_columns_and_typed_cells():
    made = table(burst().cells)
    assert [column.key for column in made.columns] == [
        "steady", "batch", "per_request_min", "per_request_mean", "per_request_max", "ttft_p50",
        "ttft_p95", "e2e_p50", "e2e_p95", "scale", "overlap", "agreement",
    ]  # fmt: skip
    steady = made.column("steady")[3]
    assert (steady.number, steady.unit, steady.spread) == (436.2, "tok/s", "± 0.4 %")
    assert not steady.is_range
    assert made.column("e2e_p50")[0].unit == "s"
    assert made.column("ttft_p50")[0].unit == "ms"
    assert made.column("nothing") is None


def test_the_mean_speed_of_a_request_has_its_interval():
    one = cell(8)
    speed = one.client.per_request_tok_per_s
    assert table([one]).column("per_request_mean")[0].interval is None
    speed.ci["mean"] = (speed.mean * 0.99, speed.mean * 1.01)
    mean = table([one]).column("per_request_mean")[0]
    assert mean.spread == "± 1.0 %"
    assert mean.interval == speed.ci["mean"]
    assert table([one]).column("per_request_max")[0].spread == ""


def test_rows_are_ordered_by_level():
    assert [row.label for row in table(burst((8, 1, 4)).cells).rows] == ["1", "4", "8"]


def test_ranges_are_said_once():
    made = table(burst(rounds=2).cells)
    assert made.column("steady")[0].spread == "(56.87–57.33)"
    assert [text for _, text in made.footnotes].count(rows.RANGES) == 1


def test_no_steady_figure_has_its_reason_below():
    one = cell(8)
    one.client.steady_output_tok_per_s = None
    one.steady = Steady(found=False, reason="8 exceeds the 4 slots")
    made = table([one])
    assert made.column("steady")[0].text == "–"
    assert made.mark(made.column("steady")[0]) == "*"
    assert made.footnotes[0] == ("*", "no steady figure: 8 exceeds the 4 slots")


def test_a_missing_percentile_shows_the_marked_maximum():
    one = cell(1)
    shown = rows.percentile(one.client.ttft_ms, "p95", "ms")
    assert shown.number == one.client.ttft_ms.max
    assert shown.note == rows.MAXIMUM_SHOWN
    assert rows.percentile(Summary(n=0), "p95", "ms").note == rows.NOT_TIMED


def test_scale_names_another_base_than_one():
    made = table(burst((2, 4)).cells)
    column = next(column for column in made.columns if column.key == "scale")
    assert column.label == "vs N = 2"
    assert [cell.text for cell in made.column("scale")] == ["1.0 ×", "1.9 ×"]


def test_scale_by_the_batch_figure_is_marked():
    cells = burst((1, 8)).cells
    cells[1].client.steady_output_tok_per_s = None
    assert table(cells).column("scale")[1].note == rows.BATCH_SCALE


def test_errors_by_kind_stand_below_the_table():
    one = cell(4)
    one.requests = Requests(
        sent=16, ok=12, failed=3, incomplete=1, errors={"timeout": 1, "http_503": 2}
    )
    made = table([one])
    assert made.column("served")[0].text == "12/16"
    assert made.column("served")[0].note == (
        "not served: http_503 × 2, timeout × 1; 1 not ended when the measurement did"
    )


def test_an_outcome_instead_of_a_number():
    one = cell(8)
    one.outcome, one.outcome_detail = "oom", "CUDA out of memory"
    one.client.steady_output_tok_per_s = None
    assert table([one]).column("steady")[0].note == "out of memory: CUDA out of memory"


def test_rates_have_no_scale():
    one = cell(4)
    one.rate_rps = 2.5
    made = table([one])
    assert made.level_heading == "req/s"
    assert made.rows[0].label == "2.5"
    assert made.column("scale") is None


def test_fatal_rows_are_marked():
    one = cell(4)
    doubt = Doubt(code="client_bound", severity="fatal", message="m", cell=one.cell)
    row = table([one], [doubt]).rows[0]
    assert row.fatal
    assert row.doubts == ("client_bound",)


def test_the_servers_count_is_the_headline_where_they_disagree_and_the_ledger_balances():
    one = cell(4)
    one.server.output_tok_per_s = estimate(200.0)
    one.client.steady_output_tok_per_s = estimate(210.0)
    one.agreement_pct = 5.0
    doubt = Doubt(code="client_server_disagree", severity="warning", message="m", cell=one.cell)
    head = headline(one, [doubt])
    assert head.estimate.point == 200.0
    assert "the client measured 210.0" in head.note
    assert headline(one, []).estimate.point == 210.0
    one.agreement_pct = 30.0
    assert headline(one, [doubt]).estimate.point == 210.0, "a rate over another window"
    one.agreement_pct = None
    assert headline(one, [doubt]).estimate.point == 210.0, "the ledger does not balance"


def test_the_note_on_ranges_needs_a_bracket():
    one = cell(4, rounds=2)
    one.client.steady_output_tok_per_s = None
    one.client.decode_tok_per_s = None
    assert rows.RANGES not in [text for _, text in table([one]).footnotes]


def test_why_there_is_no_time_is_said_of_each_cell():
    one = cell(4)
    one.client.ttft_ms = Summary(n=0)

    def note(doubts=()):
        return rows.table_of([one], doubts).column("ttft_p50")[0].note

    assert note() == rows.NOT_STREAMED
    buffered = Doubt(code="buffered_stream", severity="warning", message="m", cell=one.cell)
    assert note([buffered]) == rows.BUFFERED
    one.requests = Requests(sent=4, failed=4)
    assert note() == rows.NOT_TIMED
    one.rounds = 0
    assert note() == rows.NO_ROUND
    one.outcome = "oom"
    assert note() is None


def test_requests_that_the_client_ended_are_no_failures():
    one = cell(4)
    one.requests = Requests(sent=76, ok=12, incomplete=64)
    assert table([one]).column("served")[0].note == "64 not ended when the measurement did"


def test_a_single_level_has_no_scale_and_a_single_round_no_range():
    made = table([cell(1, rounds=1)])
    assert made.column("scale") is None
    assert made.column("steady")[0].spread == ""
    assert not made.column("steady")[0].is_range
    assert rows.RANGES not in [text for _, text in made.footnotes]

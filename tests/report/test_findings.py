import pytest
from msgspec.structs import replace

from concbench.domain import Doubt
from concbench.report.findings import finding
from concbench.result import Requests, Steady
from tests.report.conftest import cell, estimate, facts


def cells_of(rates, **kwargs):
    made = []
    for level, rate in rates.items():
        one = replace(cell(8, **kwargs), cell=f"c{level}", concurrency=level)
        one.client = replace(one.client)
        one.client.steady_output_tok_per_s = estimate(rate, 0.004, kwargs.get("rounds", 4))
        one.client.output_tok_per_s = estimate(rate * 0.95, 0.03, kwargs.get("rounds", 4))
        made.append(one)
    return made


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ({1: 57.1, 2: 108.9, 4: 209.8, 8: 436.2},
         "every doubling still adds 1.9 to 2.1 ×: the ceiling is beyond N = 8"),
        ({1: 50.0, 2: 100.0, 4: 200.0},
         "every doubling still adds 2.0 ×: the ceiling is beyond N = 4"),
        ({1: 70.0, 2: 125.0, 4: 160.0, 8: 196.0},
         "each doubling adds less: 1.8 × up to N = 2, 1.2 × up to N = 8; "
         "the ceiling is beyond N = 8"),
        ({1: 50.0, 2: 55.0},
         "the doubling up to N = 2 adds 1.1 ×; the ceiling is beyond N = 2"),
        ({1: 50.0, 2: 60.0, 4: 100.0},
         "a doubling adds 1.2 to 1.7 ×, unevenly; the ceiling is beyond N = 4"),
        ({1: 50.0, 2: 100.0, 4: 102.0, 8: 103.0},
         "throughput flattens at N = 2: N = 8 changes it by +3.0 %"),
        ({1: 50.0, 2: 100.0, 4: 99.9},
         "throughput flattens at N = 2: N = 4 changes it by −0.1 %"),
        ({1: 50.0, 2: 100.0, 4: 80.0},
         "throughput peaks at N = 2 and is 20.0 % lower at N = 4"),
        ({1: 50.0, 2: 51.0, 4: 100.0},
         "throughput stalls from N = 1 to 2 and grows again after: "
         "no ceiling to be named; measure the levels between"),
        ({8: 436.2}, "436.2 ± 0.4 % tok/s at N = 8"),
        ({8: 400.0, 9: 436.2}, "436.2 ± 0.4 % tok/s at N = 9"),
        ({4: 200.0, 8: 400.0, 10: 401.0},
         "throughput flattens at N = 8: N = 10 changes it by +0.2 %"),
        ({4: 200.0, 8: 400.0, 10: 490.0},
         "every doubling still adds 2.0 ×: the ceiling is beyond N = 10"),
        ({1: 50.0, 2: 100.0, 3: 150.0, 4: 200.0, 6: 300.0},
         "every doubling still adds 2.0 ×: the ceiling is beyond N = 6"),
        ({16: 800.0, 24: 1200.0},
         "throughput grows by 50.0 % from N = 16 to 24: the ceiling is beyond N = 24"),
    ],
)  # fmt: skip
def test_shapes(rates, text):
    assert finding(cells_of(rates), [], None) == text


@pytest.mark.parametrize(
    ("rates", "error", "text"),
    [
        ({1: 141.0, 2: 140.0, 4: 190.0, 8: 268.0}, 0.22,
         "throughput grows by 90.1 % from N = 1 to 8, though each step is within its error: "
         "no ceiling to be named; run more rounds"),
        ({1: 50.0, 2: 56.0}, 0.2,
         "whether throughput still grows from N = 1 on cannot be told: N = 2 changes it by "
         "+12.0 %, ± 31.7 %; run more rounds"),
        ({1: 50.0, 2: 51.0}, 0.03, "throughput flattens at N = 1: N = 2 changes it by +2.0 %"),
        ({1: 50.0, 2: 20.0}, 0.3, "throughput peaks at N = 1 and is 60.0 % lower at N = 2"),
    ],
)  # fmt: skip
def test_noise_is_no_ceiling(rates, error, text):
    cells = cells_of(rates)
    for one in cells:
        rate = one.client.steady_output_tok_per_s
        one.client.steady_output_tok_per_s = estimate(rate.point, error)
    assert finding(cells, [], None) == text


@pytest.mark.parametrize("rounds", [1, 4])
def test_levels_near_each_other_are_not_scaled_to_a_doubling(rounds):
    levels = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0, 16: 16.0, 31: 30.0, 32: 33.5, 33: 32.0, 62: 63.0,
              63: 62.0, 64: 65.0}  # fmt: skip
    text = finding(cells_of({n: 100 * rate for n, rate in levels.items()}, rounds=rounds), [], None)
    assert text.endswith("every doubling still adds 1.9 to 2.1 ×: the ceiling is beyond N = 64")


def test_the_engines_cap_and_what_queues_above_it():
    cells = cells_of({4: 200.0, 8: 400.0, 16: 401.0})
    cells[2].client.steady_output_tok_per_s = None
    cells[2].steady = Steady(found=False, reason="16 exceeds the 8 slots")
    assert finding(cells, [], facts()) == (
        "throughput flattens at N = 8: N = 16 changes it by +0.2 % "
        "(N = 16 by the batch figure) (the engine's own cap is 8; N = 16 queues above it)"
    )


def test_few_rounds_are_said():
    text = finding(cells_of({1: 50.0, 2: 100.0}, rounds=1), [], None)
    assert text.startswith("as far as 1 round can tell, every doubling")


def test_fatal_cells_are_left_out_and_named():
    cells = cells_of({1: 50.0, 2: 100.0, 4: 200.0})
    fatal = Doubt(code="client_bound", severity="fatal", message="m", cell=cells[2].cell)
    text = finding(cells, [fatal], None)
    assert "beyond N = 2" in text
    assert text.endswith("left out for fatal doubts: client_bound at N = 4")
    everywhere = Doubt(code="clock_stepped", severity="fatal", message="m")
    text = finding(cells, [everywhere], None)
    assert text == "do not use these numbers: clock_stepped at N = 1, 2, 4"


def test_decode_and_sustained_are_never_set_against_each_other():
    cells = cells_of({1: 50.0, 2: 100.0})
    cells[1].steady.estimand = "sustained"
    assert "(N = 2 by the batch figure)" in finding(cells, [], None)


def test_open_loop_speaks_of_latency():
    cells = cells_of({4: 100.0})
    cells[0].rate_rps = 2.5
    cells[0].requests = Requests(sent=16, ok=12, failed=4, errors={"http_503": 4})
    text = finding(cells, [], None)
    assert text.startswith("at 2.5 requests/s 75.0 % of requests were served: TTFT p50")


def rate_cell(rps, state, slope=0.01, kept=1.0):
    one = replace(cells_of({4: 100.0})[0], cell=f"r{rps:g}", concurrency=0, rate_rps=rps)
    load = {"state": state, "queue_slope_per_s": slope, "completions_per_arrival": kept}
    return replace(one, saturation=load)


def test_a_saturated_rate_is_said_before_any_latency():
    full = rate_cell(60.0, "saturated", 28.369, 0.472)
    assert finding([full], [], None) == (
        "at 60 requests/s the server is saturated: in flight grew by 28.4 a second, 47.2 % of "
        "arrivals ended, and latency is as long as the run"
    )
    text = finding([full, rate_cell(30.0, "stable")], [], None)
    assert text.startswith("at 60 requests/s the server is saturated")
    assert "; at 30 requests/s 100.0 % of requests were served: TTFT p50" in text


def test_an_undetermined_rate_says_so():
    text = finding([rate_cell(2.0, "undetermined")], [], None)
    assert text.endswith("(too short to tell whether the queue grows)")


def test_a_spoiled_rate_is_named_by_its_rate():
    one = rate_cell(8.0, "stable")
    fatal = Doubt(code="requests_failed", severity="fatal", message="m", cell=one.cell)
    assert finding([one], [fatal], None) == (
        "do not use these numbers: requests_failed at 8 requests/s"
    )


def test_nothing():
    assert finding([], [], None) == "nothing was measured"

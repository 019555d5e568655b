import pytest

from concbench.analyse.estimate import summary
from concbench.analyse.runvalues import BATCH, STEADY, common_metrics, round_values
from tests.analyse.simulate import MS, Reply, as_round


def burst(n=4, steps=100, step=20 * MS, first=50 * MS, slow=0):
    return as_round([
        Reply(times=[first + (slow if k == 0 else 0) + step * i for i in range(steps)])
        for k in range(n)
    ])  # fmt: skip


def test_one_number_a_round_of_each_metric():
    found = round_values(burst(), 3)
    assert found.values[STEADY] == pytest.approx(200, rel=0.02)
    assert found.values[BATCH] < found.values[STEADY]
    assert found.values["ttft_ms.p50"] == pytest.approx(50)
    assert found.values["tpot_ms.p50"] == pytest.approx(20)
    assert (found.place, found.key, found.estimand) == (3, (50, 4, None), "decode")
    assert len(found.output_tok) == 4


def test_the_worst_quarter_shows_what_a_median_hides():
    found = round_values(burst(slow=400 * MS), 0).values
    assert found["ttft_ms.p50"] == pytest.approx(50)
    assert found["ttft_ms.worst_quarter"] == pytest.approx(450)
    assert "ttft_ms.worst_quarter" not in round_values(burst(n=2), 0).values


def test_steady_rates_only_where_all_have_one():
    whole, short = round_values(burst(), 0), round_values(burst(steps=20), 1)
    assert common_metrics([whole], [whole])[0] == STEADY
    assert BATCH not in common_metrics([whole], [whole])
    mixed = common_metrics([whole], [short])
    assert mixed[0] == BATCH
    assert STEADY not in mixed
    assert not any(name.startswith("e2e") for name in mixed)
    assert common_metrics([], [whole]) == []


def test_without_streaming_there_is_e2e():
    made = as_round([Reply(times=[50 * MS], end=900 * MS)] * 4, stream=False)
    found = round_values(made, 0)
    assert "e2e_ms.p50" in common_metrics([found], [found])


def test_a_median_is_that_of_the_tables_also_where_half_of_a_wave_queued():
    queued = as_round([
        Reply(times=[(50 if k < 2 else 2050) * MS + 20 * MS * i for i in range(100)])
        for k in range(4)
    ])  # fmt: skip
    values = round_values(queued, 0).values
    assert values["ttft_ms.p50"] == summary([50, 50, 2050, 2050]).p50 == pytest.approx(50)
    assert round_values(burst(n=1), 0).values["ttft_ms.p50"] == pytest.approx(50)

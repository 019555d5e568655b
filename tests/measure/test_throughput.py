import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import MissingExtra, TargetError, Unreachable
from concbench.measure.throughput import iperf3_path, parse


def run(rates=(9e8, 9.2e8, 9.4e8), omitted=5e8, suffixes=("",)):
    intervals = [
        {f"sum{s}": {"bits_per_second": rate, "omitted": early} for s in suffixes}
        for rate, early in [(omitted, True), *((rate, False) for rate in rates)]
    ]
    end = {}
    for s in suffixes:
        end[f"sum_sent{s}"] = {"bits_per_second": 9.3e8, "seconds": 3.0, "retransmits": 7}
        end[f"sum_received{s}"] = {"bits_per_second": 9.21e8, "seconds": 3.01}
    return {"start": {}, "intervals": intervals, "end": end}


def test_one_way():
    (found,) = parse(json.dumps(run()).encode(), "there", 4)
    assert found.gb_per_s.point == pytest.approx(0.92)
    assert found.gb_per_s.n == 3
    assert found.gb_per_s.low is not None
    assert found.received_gb_per_s == pytest.approx(0.921)
    assert (found.way, found.streams, found.retransmits) == ("there", 4, 7)


def test_both_ways_are_two_entries():
    output = json.dumps(run(suffixes=("", "_bidir_reverse"))).encode()
    assert [one.way for one in parse(output, "both", 1)] == ["there", "back"]


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("unable to connect to server: Connection refused", "run `concbench link --serve` there"),
        ("the server is busy running a test. try again later", "busy"),
    ],
)
def test_its_own_words_where_it_failed(said, part):
    with pytest.raises(Unreachable, match=part):
        parse(json.dumps({"error": said}).encode(), "there", 1, "box:5201")


@given(st.binary(max_size=60) | st.from_type(type(None)).map(lambda _: b'{"intervals": []}'))
def test_anything_else_is_one_clear_error(output):
    with pytest.raises(TargetError):
        parse(output, "there", 1)


def test_where_it_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="apt-get install iperf3"):
        iperf3_path()

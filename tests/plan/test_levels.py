from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.plan.levels import (
    Slo,
    parse_duration,
    parse_levels,
    parse_percent,
    parse_size,
    parse_slo,
)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1,2,4,8", [1, 2, 4, 8]),
        (" 8 , 1,2 ", [1, 2, 8]),
        ("2,2,2", [2]),
        ("1..16", [1, 2, 4, 8, 16]),
        ("3 .. 20", [3, 6, 12, 20]),
        ("1..4,6,4", [1, 2, 4, 6]),
        ("5..5", [5]),
        ("65536", [65536]),
    ],
)
def test_levels(text, levels):
    assert parse_levels(text) == levels


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "0",
        "-1",
        "a",
        "1,",
        ",1",
        "1.5",
        "65537",
        "1..",
        "..4",
        "8..1",
        "0..4",
        "1;2",
        "1e3",
        "٣",
        "9" * 5000,
    ],
)
def test_bad_levels(text):
    with pytest.raises(UsageError, match=r"^--levels ") as error:
        parse_levels(text)
    assert "\n" not in str(error.value)


def test_levels_name_their_option():
    with pytest.raises(
        UsageError, match=r'^-c "0": "0" is no concurrency; expected whole numbers from'
    ):
        parse_levels("0", "-c")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2),
        ("500ms", 0.5),
        ("1m30s", 90),
        ("2h", 7200),
        ("0.5", 0.5),
        ("10", 10),
        ("1min", 60),
        ("250us", 0.00025),
        ("1 m 5 s", 65),
        ("1D", 86400),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-1s", "s", "2x", "1s!", "nan", "inf", "1e3", "9" * 400]
)
def test_bad_durations(text):
    with pytest.raises(UsageError, match="is no duration"):
        parse_duration(text)


def test_percent():
    assert parse_percent("1%") == pytest.approx(0.01)
    assert parse_percent(" 0.5 % ") == pytest.approx(0.005)
    for text in ("1", "0.01", "0%", "-1%", "101%", "%", "a%", "nan%"):
        with pytest.raises(UsageError, match="is no percentage"):
            parse_percent(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("24GiB", 24 << 30),
        ("16 MB", 16_000_000),
        ("512k", 512_000),
        ("1Ki", 1024),
        ("1.5kib", 1536),
        ("7B", 7),
        ("2t", 2 * 10**12),
    ],
)
def test_sizes(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "x", "1.0001k1", "0.3", "5 potatoes", "9" * 5000, "9" * 400 + ".0"]
)
def test_bad_sizes(text):
    with pytest.raises(UsageError, match="is no"):
        parse_size(text)


def test_slos():
    assert parse_slo("ttft_p95=2s, user_tok_per_s=20,tpot=50ms,failed=1%,ttft_from_due_p99=1s") == [
        Slo(key="ttft_p95", metric="ttft_ms", quantile="p95", limit=2000, at_most=True),
        Slo(key="user_tok_per_s", metric="user_tok_per_s", quantile=None, limit=20, at_most=False),
        Slo(key="tpot_p95", metric="tpot_ms", quantile="p95", limit=50, at_most=True),
        Slo(key="failed", metric="failed_pct", quantile=None, limit=1, at_most=True),
        Slo(
            key="ttft_from_due_p99",
            metric="ttft_from_due_ms",
            quantile="p99",
            limit=1000,
            at_most=True,
        ),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected NAME=LIMIT"),
        ("ttft_p95", "expected NAME=LIMIT"),
        ("ttft_p95=", "expected NAME=LIMIT"),
        ("ttft_p95=2s,", "expected NAME=LIMIT"),
        ("tfft_p95=2s", 'did you mean "ttft_p95"'),
        ("speed=2s", "unknown objective; expected ttft_p95"),
        ("ttft_p42=2s", "unknown objective"),
        ("ttft_p95=fast", '--slo ttft_p95: "fast" is no duration'),
        ("user_tok_per_s=0", '"0" is no rate'),
        ("user_tok_per_s=20/s", "is no rate"),
        ("ttft_p95=2s,ttft=1s", "ttft_p95 is given twice"),
    ],
)
def test_bad_slos(text, message):
    with pytest.raises(UsageError, match=message):
        parse_slo(text)


@given(
    st.text(max_size=30),
    st.sampled_from([parse_levels, parse_slo, parse_duration, parse_percent, parse_size]),
)
def test_any_text_gives_a_value_or_a_usage_error(text, parse):
    with suppress(UsageError):
        assert parse(text)

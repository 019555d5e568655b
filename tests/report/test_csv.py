import csv
import io
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from concbench.report.csv import FORMULA_STARTS, rows_to_csv, to_csv
from tests.report.conftest import HOSTILE, burst, comparison

DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\u061c\ufeff"


def parsed(text):
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_one_row_a_cell_in_full_precision():
    result = comparison()
    rows = parsed(to_csv(result))
    assert len(rows) == len(result.cells)
    for row, cell in zip(rows, result.cells, strict=True):
        assert row["lane"] == cell.lane
        assert float(row["steady_output_tok_per_s"]) == cell.client.steady_output_tok_per_s.point
        assert float(row["p50_e2e_ms"] or "nan") != 0
        assert float(row["max_ttft_ms"]) == cell.client.ttft_ms.max
        assert row["p99_e2e_ms"] == ""
    assert "secret" not in to_csv(result)


def test_every_line_ends_with_crlf():
    text = to_csv(burst())
    assert text.count("\r\n") == text.count("\n") == 5


def test_corrections_lead_every_row():
    result = burst()
    result.corrections = [{"round": "r1", "why": "flags lost", "by": None}]
    text = to_csv(result)
    assert text.startswith("corrections,interrupted,")
    assert all(row["corrections"] == "round=r1 why=flags lost" for row in parsed(text))


def test_without_cells_there_is_a_header():
    assert parsed(to_csv(burst(()))) == []


def written(char):
    if char in "\t\r\n":
        return char
    if unicodedata.category(char) == "Cc":
        return f"\\x{ord(char):02x}"
    return f"\\u{ord(char):04x}" if char in DIRECTIONS else char


def test_direction_and_control_characters_are_written_out():
    text = rows_to_csv(["a\u202eb"], [["x\x1b[31m\ny\u2066"]])
    assert text == 'a\\u202eb\r\n"x\\x1b[31m\ny\\u2066"\r\n'


def test_sentences_that_were_taken_back_are_no_python():
    result = burst()
    result.corrections = [{"round": "r1", "why": "w", "was": ["it's 5", "and 6"]}]
    assert parsed(to_csv(result))[0]["corrections"] == 'round=r1 why=w was="it\'s 5" / "and 6"'


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_text_survives_and_is_never_a_formula(texts):
    back = list(csv.reader(io.StringIO(rows_to_csv(texts, [texts]), newline=""), strict=True))
    for field, text in zip(back[-1] if back[-1] else [""], texts, strict=True):
        clean = "".join(map(written, text.replace("\x00", "")))
        assert field in (clean, f"'{clean}")
        assert not field.lstrip(" ").startswith(FORMULA_STARTS)


def test_negative_numbers_stay_numbers():
    assert rows_to_csv(["a"], [[-1.5], [None], [True]]) == 'a\r\n-1.5\r\n""\r\ntrue\r\n'


def test_hostile_lane_is_one_field():
    result = burst(lane="=cmd|' /C calc'!A0" + HOSTILE)
    assert all(row["lane"].startswith("'=cmd") for row in parsed(to_csv(result)))

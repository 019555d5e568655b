import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from concbench.report.inert import inert, without_credentials, without_secrets
from tests.report.conftest import HOSTILE


@given(st.text(), st.integers(40, 200))
def test_one_visible_line_within_the_limit(text, limit):
    line = inert(text, limit)
    assert len(line) <= limit
    assert not any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in line)


@given(st.text(st.characters(categories=["L", "N", "P"]), max_size=40))
def test_plain_text_is_left_alone(text):
    if not any(char in text for char in "\u200e\u200f"):
        assert inert(text) == text


def test_escape_sequences_and_direction_marks_are_written_out():
    line = inert(HOSTILE, 300)
    assert "\\x1b[31m" in line
    assert "\\u202e" in line
    assert "\U0001f680" in line
    assert line.endswith("characters)")


def test_credentials_are_hidden():
    assert without_credentials("http://user:pw@box:8000/v1") == "http://***@box:8000/v1"
    assert without_credentials("http://box:8000") == "http://box:8000"
    assert "pw" not in without_credentials("http://user:pw@[box")
    argv = ["serve", "--api-key", "k1", "--api-key=k2", "--port", "1"]
    assert without_secrets(argv) == ["serve", "--api-key", "***", "--api-key=***", "--port", "1"]

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.store.text import escape_text, escape_tree, unescape_text, unescape_tree

ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=[]), st.sampled_from(list("\\ud8350\x00\ud835\udc00"))
    )
)


@given(ANY_TEXT)
def test_any_text_comes_back_and_is_utf8(text):
    escaped = escape_text(text)
    assert "\x00" not in escaped
    escaped.encode()
    assert unescape_text(escaped) == text


@given(st.from_regex(r"(\\{0,3}(u(d8|00)[0-9a-f]{2}|\x00|[\ud800-\ud8ff])){1,4}", fullmatch=True))
def test_text_that_looks_escaped_comes_back(text):
    assert unescape_text(escape_text(text)) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain é 𝔸", "plain é 𝔸"),
        ("a\\nb", "a\\nb"),
        ("half \ud835.", "half \\ud835."),
        ("nul\x00", "nul\\u0000"),
        ("said \\ud835", "said \\\\ud835"),
    ],
)
def test_only_what_must_be_is_changed(text, escaped):
    assert escape_text(text) == escaped


def test_trees_keep_their_shape():
    tree = {"k\ud800": ["\x00", 1, None, True, {"n": 1.5}]}
    escaped = escape_tree(tree)
    assert unescape_tree(msgspec.json.decode(msgspec.json.encode(escaped))) == tree

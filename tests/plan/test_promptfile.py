import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.plan.promptfile import load_prompts_file, longest_tok


def test_text_file(tmp_path):
    path = tmp_path / "p.txt"
    path.write_bytes("\ufeffTell me.\r\n\r\n Grüße \u2028 Welt\n".encode())
    prompts = load_prompts_file(path)
    assert [p.text for p in prompts] == ["Tell me.", "Grüße \u2028 Welt"]
    assert [p.index for p in prompts] == [0, 1]
    assert {p.tok for p in prompts} == {None}


def test_json_file(tmp_path):
    path = tmp_path / "p.jsonl"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    rows = [{"prompt": "a\nb", "id": 3}, {"messages": messages}]
    path.write_text("\n".join(map(json.dumps, rows)))
    first, second = load_prompts_file(path)
    assert first.text == "a\nb"
    assert first.messages is None
    assert second.messages == messages


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", b"", r"p\.txt: holds no prompts"),
        ("p.txt", b"\n \n", r"p\.txt: holds no prompts"),
        ("p.txt", b"good\nb\xffd\n", r"p\.txt:2: not UTF-8 \(byte 2\)"),
        ("p.jsonl", b'{"prompt": "a"}\n{"prompt": 3}\n', r"p\.jsonl:2: Expected `str"),
        ("p.jsonl", b"\n{oops\n", r"p\.jsonl:2: JSON is malformed"),
        ("p.jsonl", b'["a"]', r"p\.jsonl:1: Expected `object`"),
        ("p.jsonl", b'{"text": "a"}', r'p\.jsonl:1: expected \{"prompt"'),
        ("p.jsonl", b'{"prompt": "", "messages": []}', r"p\.jsonl:1: expected"),
        ("p.jsonl", b'{"prompt": "a", "messages": [{}]}', r"p\.jsonl:1: expected"),
        ("p.jsonl", b'{"messages": [{"role": "user"}]}', r'p\.jsonl:1: a message lacks "role"'),
        ("p.jsonl", b"[" * 100_000, r"p\.jsonl:1: "),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as error:
        load_prompts_file(path)
    assert "\n" not in str(error.value)


def test_unreadable_file(tmp_path):
    with pytest.raises(UsageError, match="cannot read prompts: No such file"):
        load_prompts_file(tmp_path / "absent.txt")
    with pytest.raises(UsageError, match="cannot read prompts: Is a directory"):
        load_prompts_file(tmp_path)


@given(st.binary(max_size=200), st.sampled_from(["p.txt", "p.jsonl"]))
def test_any_bytes_give_prompts_or_one_line(tmp_path_factory, content, name):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    message = ""
    try:
        assert all(p.text.encode() for p in load_prompts_file(path))
    except UsageError as error:
        message = str(error)
    assert "\n" not in message


def test_the_longest_is_counted_in_words_where_nothing_counted_tokens(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("one\n" + "word " * 100)
    assert 100 <= longest_tok(load_prompts_file(path)) <= 200
    assert longest_tok([]) == 1

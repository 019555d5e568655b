import tomllib

from hypothesis import given
from hypothesis import strategies as st

from concbench.plan.toml_lines import key_lines

DOCUMENT = '''\
# "not.a" = key
top = """
fake = 1
[fake]
"""
[a.b] # comment
x.y = 1
"q.r" = { u = 1, v = [1, { w = 2 }] }
'l' = '[fake]'

[a."d e"]
list = [
  "one", # two, [
  [2.5, 3],
]
date = 2020-01-01 10:00:00
[[t]]
k = "a\\"b]"
[[t]]
k = \'\'\'it''s\'\'\'
k2 = """quoted""\\""""
[t.sub]
z = true
'''


def test_lines():
    tomllib.loads(DOCUMENT)
    lines = key_lines(DOCUMENT)
    assert {".".join(map(str, path)): line for path, line in lines.items()} == {
        "top": 2,
        "a": 6,
        "a.b": 6,
        "a.b.x": 7,
        "a.b.x.y": 7,
        "a.b.q.r": 8,
        "a.b.q.r.u": 8,
        "a.b.q.r.v": 8,
        "a.b.q.r.v.0": 8,
        "a.b.q.r.v.1": 8,
        "a.b.q.r.v.1.w": 8,
        "a.b.l": 9,
        "a.d e": 11,
        "a.d e.list": 12,
        "a.d e.list.0": 13,
        "a.d e.list.1": 14,
        "a.d e.list.1.0": 14,
        "a.d e.list.1.1": 14,
        "a.d e.date": 16,
        "t": 17,
        "t.0": 17,
        "t.0.k": 18,
        "t.1": 19,
        "t.1.k": 20,
        "t.1.k2": 21,
        "t.1.sub": 22,
        "t.1.sub.z": 23,
    }


def test_windows_line_ends():
    assert key_lines("a = 1\r\nb = 2\r\n") == {("a",): 1, ("b",): 2}


@given(st.text(alphabet="ab.[]{}=\"'\\\n, #1", max_size=60))
def test_any_text(text):
    """No text raises; every key of a valid document is found on a line that exists."""
    lines = key_lines(text)
    try:
        data = tomllib.loads(text)
    except ValueError:
        return
    assert set(paths(data)) <= set(lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


def paths(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*path, key))


def test_a_stray_bracket_ends_the_reading():
    assert key_lines("a = 1\nb = [}") == {("a",): 1, ("b",): 2, ("b", 0): 2}

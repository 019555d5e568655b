import pytest

from concbench.errors import PlanError
from concbench.store.importers.table import read_table

GOOD = """
schema = "concbench.table/1"
title = "t"
[lanes.a]
engine = "vllm"
slots = 8
[lanes.b]
[[readings]]
id = "one"
levels = [1, 2]
retracted = "a flag was lost"
by = "two"
values = { a = [10, 20.5], b = ["capped", [1, 2, 3]] }
[[readings]]
id = "one"
metric = "ttft_ms"
levels = [1, 2]
values = { a = [5, 6] }
[[readings]]
id = "two"
metric = "decode_tok_per_s"
contexts = [50, 5000]
concurrency = 4
values = { a = [10, 20], b = [11, 21] }
half_widths = { a = [1, 2] }
"""


def table(tmp_path, text):
    path = tmp_path / "t.toml"
    path.write_text(text)
    return read_table(path)


def test_readings_cells_and_links(tmp_path):
    found = table(tmp_path, GOOD)
    one, two = found.readings
    assert (one.retracted, one.by) == ("a flag was lost", "two")
    cells = {cell.cell: cell for cell in one.cells}
    assert cells["one:a.50.c2"].figures == {
        "output_tok_per_s": {"mean": 20.5},
        "ttft_ms": {"mean": 6.0},
    }
    assert cells["one:b.50.c1"].detail == "capped"
    assert not cells["one:b.50.c1"].measured
    assert cells["one:b.50.c2"].figures["output_tok_per_s"]["values"] == [1, 2, 3]
    far = next(cell for cell in two.cells if cell.context_tok == 5000 and cell.lane == "a")
    assert far.concurrency == 4
    assert far.figures["decode_tok_per_s"] == {"mean": 20.0, "half_width": 2.0}
    assert found.facts["a"].slots == 8
    assert found.facts["b"].engine == "openai"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("concbench.table/1", "x/1", "schema"),
        ("slots = 8", "slots = true", "lanes.a.slots: expected int"),
        ("slots = 8", 'slots = "8"', "lanes.a.slots: expected int"),
        ("slots = 8", "solts = 8", "lanes.a.solts"),
        ('id = "two"', "", r"readings\[2\].id"),
        ("levels = [1, 2]\nretracted", "levels = [1, 1]\nretracted", "each once"),
        ("levels = [1, 2]\nretracted", "levels = [0, 2]\nretracted", "above 0"),
        ("levels = [1, 2]\nretracted", "retracted", "either levels or contexts"),
        ("b = [11, 21]", "c = [11, 21]", "values.c: no such lane"),
        ("b = [11, 21]", "b = [11]", "values.b: expected a list of 2"),
        ("b = [11, 21]", "b = [11, -1]", "above 0"),
        ("b = [11, 21]", "b = [11, nan]", "above 0"),
        ("b = [11, 21]", "b = [11, []]", "at least one"),
        ("half_widths = { a = [1, 2] }", "half_widths = { a = [1] }", "half_widths.a"),
        ('by = "two"', 'by = "three"', "no other reading 'three'"),
        ('by = "two"', 'by = "one"', "no other reading 'one'"),
        ("decode_tok_per_s", "speed", "metric: expected one of"),
        ("concurrency = 4", "streams = 4", "streams: no such key"),
        ("title", "title = 3 3", "line 3"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(PlanError, match=message) as caught:
        table(tmp_path, GOOD.replace(old, new, 1))
    assert "\n" not in str(caught.value)


def test_a_table_without_readings(tmp_path):
    with pytest.raises(PlanError, match="at least one"):
        table(tmp_path, 'schema = "concbench.table/1"')

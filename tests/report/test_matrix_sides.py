"""One side beside another, as texts: doubts and what is unlike stand at the figures."""

from msgspec.structs import replace

from concbench.analyse.matrix_against import Caveats
from concbench.analyse.matrix_tables import matrix
from concbench.domain import to_builtins
from concbench.report.csv import matrix_csv
from concbench.report.html import to_html
from concbench.report.markdown import to_markdown
from concbench.report.matrix import matrix_tables
from tests.analyse.test_matrix_against import lanes
from tests.report.conftest import HOSTILE, burst


def shown(**caveats):
    found = matrix(lanes(), {}, caveats=Caveats(**caveats))
    payload = {"matrix": to_builtins(found)}
    return {table.title: table for table in matrix_tables(payload)}, payload


def test_a_doubted_cell_is_marked_and_has_no_change():
    cells = lanes()
    tables, payload = shown(fatal={cells[5].cell: ["client_bound"], cells[0].cell: ["stalled"]})
    against = tables["Lanes: b against a"]
    assert [row[-2:] for row in against.rows if row[1] == "4"] == [("–", "✗ client_bound (b)")]
    assert {row[-1] for row in against.rows if row[1] == "1"} == {"✗ stalled (a)"}
    assert against.notes[0].startswith("1 of 1 figures beyond the noise, 4 left out for a fatal")
    level = tables["Concurrency on b"]
    assert [row[1] for row in level.rows] == ["1", "2", "✗ 4"]
    assert level.notes[-1].endswith("client_bound (short (50) · N = 4)")
    alone = tables["One stream alone"]
    assert alone.rows[0][1] == "✗ a"
    assert "stalled (short (50) · a · N = 1)" in " ".join(alone.notes)
    whole = replace(burst(), cells=cells, payload=payload)
    assert "client_bound (b)" in to_html(whole)
    assert "client_bound (b)" in to_markdown(whole).replace("\\", "")
    names = {name: text for name, text in matrix_csv(whole).items() if "client_bound" in text}
    assert any("client_bound (b)" in text for text in names.values())


def test_a_drifted_change_and_what_is_unlike_are_told_below_the_table():
    tables, _ = shown(
        drift_pct={("a", None): 30.0}, unlike=lambda a, b: ["quantization", "kv_cache_dtype"]
    )
    against = tables["Lanes: b against a"]
    assert "drifted" in {row[-1] for row in against.rows}
    assert "the control moved by +30.0 %, more than half of the change" in against.notes[0]
    assert against.notes[1].startswith("unlike: quantization, kv_cache_dtype: a change is that of")
    clean, _ = shown()
    assert len(clean["Lanes: b against a"].notes) == 1
    assert "drift" not in clean["Lanes: b against a"].notes[0]


def test_names_of_lanes_in_doubts_are_inert():
    cells = [replace(each, lane=HOSTILE if each.lane == "b" else "a") for each in lanes()]
    caveats = Caveats(fatal={cells[5].cell: ["client_bound"]})
    payload = {"matrix": to_builtins(matrix(cells, {}, caveats=caveats))}
    text = "".join(cell for table in matrix_tables(payload) for row in table.rows for cell in row)
    assert "client_bound (" in text
    assert not set(text) & set("\n\r\x1b\u202e")

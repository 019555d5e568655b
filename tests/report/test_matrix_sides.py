"""One side beside another, as texts: doubts and what is unlike stand at the figures."""

from msgspec.structs import replace

from concbench.analyse.estimate import mean_estimate
from concbench.analyse.matrix_against import Caveats
from concbench.analyse.matrix_tables import matrix
from concbench.domain import to_builtins
from concbench.report.csv import matrix_csv
from concbench.report.html import to_html
from concbench.report.markdown import to_markdown
from concbench.report.matrix import matrix_tables
from concbench.report.matrix_sentence import matrix_sentence
from tests.analyse.test_matrix_against import lanes
from tests.analyse.test_matrix_tables import cell, t_estimate
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


def test_what_the_noise_explains_is_no_difference_seen_in_both_tables_alike():
    cells = [cell(lane, 50, 1, 10.0, decode=t_estimate(rate, 0.04)) for lane, rate in
             {"a": 70.5, "b": 73.3}.items()]  # fmt: skip
    payload = {"matrix": to_builtins(matrix(cells, {}))}
    tables = {table.title: table for table in matrix_tables(payload)}
    alone, against = tables["One stream alone"], tables["Lanes: b against a"]
    (row,) = [row for row in against.rows if row[2] == "decode tok/s"]
    assert row[-1] == "no difference seen"
    assert row[-2].startswith("+4.0 % [")
    assert alone.rows[1][-2] == f"{row[-2]} (no difference seen)"
    assert "does not show that both are equal" in " ".join((*alone.notes, *against.notes))
    assert "about 1 in 20 is beyond by chance" in against.notes[0]


def test_two_rounds_are_too_few_to_judge():
    two = {
        name: mean_estimate(rates) for name, rates in {"a": [10.0, 10.1], "b": [12.0, 12.1]}.items()
    }
    cells = [cell(lane, 50, 1, 10.0, decode=two[lane], rounds=2) for lane in two]
    cells = [replace(one, client=replace(one.client, output_tok_per_s=two[one.lane]))
             for one in cells]  # fmt: skip
    payload = {"matrix": to_builtins(matrix(cells, {}))}
    tables = {table.title: table for table in matrix_tables(payload)}
    against = tables["Lanes: b against a"]
    assert {row[-1] for row in against.rows} == {"unknown"}
    assert against.notes[0].startswith("0 of 3 figures beyond the noise, 3 unknown (fewer than 3")
    assert "1 in 20" not in against.notes[0]
    assert tables["One stream alone"].rows[1][-2] == "+19.9 % (noise unknown)"
    assert "noise unknown in 1 cell (fewer than 3 rounds)" in matrix_sentence(payload)


def test_names_of_lanes_in_doubts_are_inert():
    cells = [replace(each, lane=HOSTILE if each.lane == "b" else "a") for each in lanes()]
    caveats = Caveats(fatal={cells[5].cell: ["client_bound"]})
    payload = {"matrix": to_builtins(matrix(cells, {}, caveats=caveats))}
    text = "".join(cell for table in matrix_tables(payload) for row in table.rows for cell in row)
    assert "client_bound (" in text
    assert not set(text) & set("\n\r\x1b\u202e")

import csv
import io

from msgspec.structs import replace

from concbench.analyse.matrix_tables import matrix
from concbench.domain import to_builtins
from concbench.report.csv import matrix_csv, to_csv
from concbench.report.html import to_html
from concbench.report.markdown import to_markdown
from concbench.report.matrix import matrix_tables
from concbench.report.terminal import render
from concbench.result import to_json
from tests.analyse.test_matrix_tables import cell, facts, t_estimate
from tests.report.conftest import HOSTILE, burst, console, text_of


def swept(links=("5g", "bond"), lane="gguf"):
    cells = [
        cell(
            lane,
            context,
            n,
            (30.0 if context == 50 else 6.0) * factor * min(n, 3),
            link=link,
            decode=t_estimate(60.0 * factor) if n == 1 else None,
            overlap=None if n == 1 else 0.5,
        )
        for link, factor in zip(links, (1.0, 1.2), strict=False)
        for context in (50, 5000)
        for n in (1, 2, 3, 5)
    ]
    result = burst()
    return replace(
        result,
        cells=cells,
        targets={lane: facts(lane, pool=3 * 5128)},
        payload={"matrix": to_builtins(matrix(cells, {lane: facts(lane, pool=3 * 5128)}))},
    )


def printed(result, **more):
    target = console(200)
    render(result, target, **more)
    return text_of(target)


def test_terminal_and_markdown_show_every_table():
    result = swept()
    for text in (printed(result), to_markdown(result), to_html(result)):
        for part in (
            "One stream alone",
            "Concurrency on gguf",
            "From one stream to saturation",
            "Aggregate as prefill alone predicts it",
            "How many at once",
            "bond against 5g",
            "over-KV",
        ):
            assert part in text
    assert "+20.0 %" in printed(result)
    assert "5 (1.67 ×): 0 failed" in printed(result)


def test_many_series_are_counted_unless_asked_for():
    first = swept()
    cells = [
        replace(each, cell=f"{each.cell}{i}", lane=f"lane{i}")
        for i in range(3)
        for each in first.cells
    ]
    many = replace(first, cells=cells, payload={"matrix": to_builtins(matrix(cells, {}))})
    assert "12 series in detail" in printed(many)
    assert "per request tok/s" not in printed(many)
    assert "per request tok/s" in printed(many, every_series=True)


def test_a_study_of_one_series_shows_none():
    assert matrix_tables(burst().payload) == ()
    assert matrix_csv(burst()) == {}
    assert "One stream alone" not in printed(burst())


def test_the_cells_of_the_csv_know_their_place():
    rows = list(csv.DictReader(io.StringIO(to_csv(swept()))))
    over = [row for row in rows if row["over_kv"] == "true"]
    assert [(row["context_tok"], row["concurrency"]) for row in over] == [("5000", "5")] * 2
    assert over[0]["relative_to"] == "3"
    assert float(over[0]["elapsed_ratio"]) == float(over[0]["concurrency_ratio"])


def test_every_table_as_csv_has_numbers_only_in_its_columns():
    texts = matrix_csv(swept())
    assert set(texts) == {
        *(
            "single_stream",
            "concurrency",
            "gain",
            "predicted",
            "max_concurrency",
            "against",
            "unlike",
        ),
    }
    against = list(csv.DictReader(io.StringIO(texts["against"])))
    assert {row["change_exceeds_noise"] for row in against} <= {"true", "false", ""}
    single = list(csv.DictReader(io.StringIO(texts["single_stream"])))
    assert float(single[1]["decode_change_pct"]) > 19
    assert all("{" not in text for text in texts.values())


def test_hostile_names_stay_text():
    result = swept(lane=HOSTILE)
    assert "\x1b" not in printed(result)
    assert "<script>alert" not in to_markdown(result)
    assert "<script>alert" not in to_html(result)
    assert to_json(result)


def test_headings_of_the_concurrency_table_are_told_apart():
    (found,) = [t for t in matrix_tables(swept().payload) if t.title.startswith("Concurrency on")][
        :1
    ]
    assert len(set(found.headings)) == len(found.headings)
    assert {"elapsed ratio", "N ratio", "aggregate scale"} <= set(found.headings)
    assert any("within 3 %" in note for note in found.notes)

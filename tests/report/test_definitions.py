from concbench.report.definitions import DEFINITIONS, hover_text, render_definitions
from tests.report.conftest import console, text_of


def test_definitions_are_complete_and_printed():
    methods = (
        "ttft ttft_from_due ttfo icl itl tpot e2e send_delay per_request batch steady prefill "
        "decode overlap acceptance goodput agreement"
    )
    assert set(methods.split()) <= set(DEFINITIONS)
    target = console(80)
    render_definitions(target)
    text = text_of(target)
    for definition in DEFINITIONS.values():
        assert definition.name in text
        assert definition.text.endswith(".")
    assert hover_text(None) == ""
    assert "÷" in hover_text("steady")

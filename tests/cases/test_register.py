"""The register is whole: every case has a test or a reason, and the page says the same."""

from __future__ import annotations

from tests.cases.register import CASES, NOT_YET, PAGE, SECTIONS, page, where_tested


def test_every_case_is_tested_or_has_a_reason() -> None:
    known = where_tested()
    assert len(CASES) == 75
    assert [case for case in CASES if case not in known and case not in NOT_YET] == []
    assert [case for case in (*known, *NOT_YET) if case not in CASES] == []
    assert {case[0] for case in CASES} == set(SECTIONS)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()

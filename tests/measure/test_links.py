import sys

import pytest

from concbench.errors import UsageError
from concbench.measure.links import Links, apply, command_lines
from concbench.plan.model import LinkPlan


def writes(path, text):
    return [sys.executable, "-c", f"open({str(path)!r}, 'a').write({text!r})"]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def link(log, **changes):
    known = {"name": "bond", "before": [writes(log, "up ")], "after": [writes(log, "down ")]}
    return LinkPlan(**(known | changes))


def never(text):
    raise AssertionError("asked")


def test_before_then_the_block_then_after(log):
    asked = []
    with apply(link(log), False, lambda text: asked.append(text) or True):
        log.write_text(log.read_text() + "in ")
    assert log.read_text() == "up in down "
    (text,) = asked
    assert text.splitlines() == command_lines(link(log))


def test_what_is_not_confirmed_never_runs(log):
    with pytest.raises(UsageError, match="--yes"), apply(link(log), False, lambda text: False):
        raise AssertionError("entered")
    assert not log.exists()


def test_yes_shows_and_does_not_ask(log):
    said = []
    with apply(link(log), True, never, said.append):
        pass
    assert "before" in said[0]
    assert log.read_text() == "up down "


def test_a_link_without_commands_asks_nothing():
    with apply(LinkPlan(name="plain"), False, never):
        pass


def test_each_link_is_confirmed_once_and_several_together(log):
    asked = []
    links = Links(yes=False, ask=lambda text: asked.append(text) or True)
    first, second = link(log), link(log, name="other")
    links.confirm([first, second, LinkPlan(name="plain")])
    for each in (first, second, first):
        with links.apply(each):
            pass
    assert len(asked) == 1
    changed = link(log, after=[])
    with links.apply(changed):
        pass
    assert len(asked) == 2


def test_after_runs_when_the_block_fails(log):
    with pytest.raises(ValueError, match="boom"), apply(link(log), True, never):
        raise ValueError("boom")
    assert log.read_text() == "up down "


def test_a_before_that_fails_is_taken_back(log):
    broken = [sys.executable, "-c", "import sys; sys.exit('no such device')"]
    plan = link(log, before=[writes(log, "up "), broken])
    with pytest.raises(UsageError, match="ended with 1: no such device"), apply(plan, True, never):
        raise AssertionError("entered")
    assert log.read_text() == "up down "


def test_every_after_runs_though_one_fails(log):
    plan = link(log, after=[["/nowhere/x"], writes(log, "down ")])
    with pytest.raises(UsageError, match="cannot be run"), apply(plan, True, never):
        pass
    assert log.read_text() == "up down "

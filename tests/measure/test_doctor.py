"""Each check against what it is told, and the target's checks against servers with faults."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from concbench.load import generator
from concbench.measure import doctor
from concbench.measure.doctor import machine_checks, other_load, throttling


def test_every_check_of_this_machine_says_something() -> None:
    found = machine_checks(look_s=0.05)
    assert len({check.name for check in found}) == len(found) == 7
    assert all(check.message for check in found)
    assert {check.state for check in found} <= {"ok", "warn", "bad", "unknown"}


def test_open_files_are_raised_where_they_may_be() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        found = doctor.open_files(512)
        assert found.state == "ok"
        assert "raised from 256" in found.message
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_hard_limit_that_is_too_low_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (100, 100))
    monkeypatch.setattr(generator.resource, "getrlimit", lambda _: (100, 100))
    assert doctor.open_files(4096).state == "warn"


@pytest.mark.parametrize(
    ("text", "state"), [("32768\t60999\n", "ok"), ("40000 41000", "warn"), ("?", "unknown")]
)
def test_ephemeral_ports(tmp_path: Path, text: str, state: str) -> None:
    path = tmp_path / "range"
    path.write_text(text)
    assert doctor.ephemeral_ports(path).state == state
    assert doctor.ephemeral_ports(tmp_path / "none").state == "unknown"


@pytest.mark.parametrize(
    ("names", "state"),
    [(["performance"] * 2, "ok"), (["performance", "powersave"], "warn"), ([], "unknown")],
)
def test_the_governor_of_every_core_counts(tmp_path: Path, names: list[str], state: str) -> None:
    folders = []
    for number, name in enumerate(names):
        folders.append(tmp_path / f"cpu{number}")
        folders[-1].mkdir()
        (folders[-1] / "scaling_governor").write_text(name + "\n")
    assert doctor.governor(folders).state == state


@pytest.mark.parametrize(("name", "state"), [("tsc", "ok"), ("hpet", "warn")])
def test_the_clock_source(tmp_path: Path, name: str, state: str) -> None:
    path = tmp_path / "current"
    path.write_text(name)
    assert doctor.clock_source(path).state == state


def test_other_load_names_who_it_is() -> None:
    busy = other_load(
        {"cpu_foreign_cores": 1.5, "cpu_cores": 4.0}, [{"process": "name=make", "cores": 1.4}]
    )
    assert busy.state == "warn"
    assert "name=make" in busy.message
    assert other_load({"cpu_foreign_cores": 0.1, "cpu_cores": 4.0}, []).state == "ok"
    assert other_load({}, []).state == "unknown"


def test_throttling_counts_only_what_came_while_we_looked() -> None:
    count = "cpu_throttle_count"
    assert throttling({count: 7.0}, {count: 7.0}).state == "ok"
    assert throttling({count: 7.0}, {count: 9.0}).state == "warn"
    assert throttling({}, {}).state == "unknown"

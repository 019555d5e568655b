"""`concbench doctor` against servers whose faults are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trustme

from concbench.cli import options
from concbench.cli.main import main
from concbench.errors import UsageError
from concbench.measure import calibrate, doctor
from concbench.store.read import open_study
from tests.servers import reference_server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "LOOK_S", 0.05)
    monkeypatch.setattr(calibrate, "LENGTH_S", 0.3)


def examined(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", *words, "--quiet", "--json", "-"])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    result = json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))
    assert result["cells"] == []
    return code, result


def states(result: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in result["payload"]["doctor"]["checks"]}


def test_a_sound_target(capsys: pytest.CaptureFixture[str]) -> None:
    with reference_server("--ttft-ms", "20", "--itl-ms", "4") as url:
        code, result = examined(capsys, url, "--no-calibration")
    assert code == 0
    found = states(result)
    wanted = ("name", "streaming", "buffering", "token counts", "prompt cache")
    assert {name: found[name] for name in wanted} == dict.fromkeys(wanted, "ok")
    assert found["round trip"] in ("ok", "warn")  # the machine may be busy
    assert result["target"]["engine"] == "vllm"
    assert result["payload"]["doctor"]["calibration"] is None


@pytest.mark.parametrize(
    ("faults", "name", "state", "exit_code"),
    [
        (["--coalesce-ms", "300"], "buffering", "bad", 4),
        (["--prefix-cache", "--prefill-tok-per-s", "4000"], "prompt cache", "warn", 0),
        (["--usage", "none"], "token counts", "warn", 0),
        (["--fault", "one-chunk"], "streaming", "bad", 4),
    ],
)
def test_what_is_wrong_with_a_target_is_found(
    capsys: pytest.CaptureFixture[str], faults: list[str], name: str, state: str, exit_code: int
) -> None:
    with reference_server("--ttft-ms", "20", "--itl-ms", "4", *faults) as url:
        code, result = examined(capsys, url, "--no-calibration")
    assert states(result)[name] == state
    assert code == exit_code


def test_the_calibration_is_shown_kept_and_copied_into_studies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = main(["doctor", "--streams", "2,4", "--tok-per-s", "20"])
    shown = capsys.readouterr().out
    assert "null server" in shown
    known = calibrate.stored(next((tmp_path / "cache" / "concbench").iterdir()).stem[12:])
    assert (code == 4) == (known[1].method == "none")
    out = tmp_path / "study"
    with reference_server("--ttft-ms", "10", "--itl-ms", "4") as url:
        words = ["--levels", "2", "--rounds", "1", "--warmup", "0", "--output-tokens", "20"]
        main(["burst", url, *words, "--procs", "1", "--out", str(out), "--quiet", "--json", "-"])
    result = json.loads(capsys.readouterr().out)
    [note] = open_study(out).notes("calibration")
    assert note["procs"] == 1
    ceiling = result["cells"][0]["instrument"]["ceiling_tok_per_s"]
    assert ceiling == known[1].ceiling_tok_per_s


def test_a_burst_over_two_processes_says_how_wide_its_start_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "study"
    with reference_server("--ttft-ms", "20", "--itl-ms", "4") as url:
        words = ["--levels", "6", "--rounds", "1", "--warmup", "0", "--output-tokens", "20"]
        main(["burst", url, *words, "--procs", "2", "--out", str(out), "--quiet", "--json", "-"])
    cell = json.loads(capsys.readouterr().out)["cells"][0]
    assert cell["requests"]["ok"] == 6
    assert cell["tokens"]["output"] == 6 * 20
    assert cell["instrument"]["start_spread_ms"] > 0
    assert cell["instrument"]["ceiling_tok_per_s"] is None


@pytest.mark.parametrize("trust", ["--ca", "--insecure"])
def test_processes_of_their_own_trust_whom_the_command_trusts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, trust: str
) -> None:
    authority = trustme.CA()
    cert, ca = tmp_path / "cert.pem", tmp_path / "ca.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(cert))
    authority.cert_pem.write_to_path(str(ca))
    trusting = [trust, str(ca)] if trust == "--ca" else [trust]
    with reference_server("--ttft-ms", "20", "--itl-ms", "4", "--tls-cert", str(cert)) as url:
        words = ["--levels", "4", "--rounds", "1", "--warmup", "0", "--output-tokens", "8"]
        options = ["--procs", "2", "--out", str(tmp_path / "study"), "--quiet", "--json", "-"]
        main(["burst", url, *words, *options, *trusting])
    cell = json.loads(capsys.readouterr().out)["cells"][0]
    assert cell["requests"]["ok"] == 4
    assert cell["instrument"]["stamp"] == "kernel"


def test_the_stall_of_tests_is_read_from_the_environment_only_in_its_form() -> None:
    assert options.stall_of("") is None
    assert options.stall_of("10ms/100ms") == (10_000_000, 100_000_000)
    for wrong in ("10/100", "100ms/10ms", "0ms/10ms", "x"):
        with pytest.raises(UsageError, match="CONCBENCH_TEST_STALL"):
            options.stall_of(wrong)

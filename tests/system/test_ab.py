"""One lane with a flag varied, on the embedded engine: started for each run, nothing left over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.errors import MissingExtra
from concbench.serve.embedded import embedded_recipe
from concbench.store.read import open_study
from tests.serve.processes import all_end
from tests.system.test_lanes import marked

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By this variable the test's own engines are told from those of others.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    try:
        embedded_recipe(1, 256, {})
    except MissingExtra as error:
        pytest.skip(str(error))


def test_two_kinds_of_kv_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s"
    words = ["--vary", "cache-type-k=f16,q8_0", "--accept", "kv_cache_dtype"]
    size = ["--levels", "1", "--rounds", "1", "--output-tokens", "4", "--pairs", "1"]
    code = main(["ab", "embedded", *words, *size, "--out", str(out), "--quiet", "--json", "-"])
    result = json.loads(capsys.readouterr().out)
    assert code in (0, 4)
    # One pair is no verdict; what is unlike is named and was accepted.
    for row in result["verdicts"]:
        assert row["verdict"] in ("inconclusive", "invalid")
        assert row["accepted"] == row["unlike"] == ["kv_cache_dtype"]
        assert (row["a"], row["n_pairs"]) == ("embedded[cache-type-k=f16]", 1)
    assert result["verdicts"][0]["ratio"]["point"] > 0
    sides = result["targets"]
    assert sides["embedded[cache-type-k=f16]"]["kv_cache_dtype"] == "f16"
    assert "q8_0" in sides["embedded[cache-type-k=q8_0]"]["kv_cache_dtype"]
    assert all(facts["teardown"]["left_pids"] == [] for facts in sides.values())
    reader = open_study(out)
    assert len(reader.notes("start")) == 3
    assert result["payload"]["ab"]["order"] == "ABA"
    assert all_end(marked())

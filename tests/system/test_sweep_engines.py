"""Two real engines in one sweep: vLLM on the CPU beside the embedded llama.cpp, from the example.

`make test-vllm` runs it. CONCBENCH_VLLM_HOME names the folder in which `make vllm` was run, where
it was not this one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from concbench.cli.main import main
from concbench.store.read import open_study
from tests.system.test_lanes import marked

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("CONCBENCH_VLLM_HOME", ROOT))
NEEDED = (HOME / ".venv-vllm" / "bin" / "vllm", HOME / ".cache-vllm" / "smollm2")
EXAMPLE = ROOT / "examples" / "two-engines.toml"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not all(map(Path.exists, NEEDED)), reason="needs `make vllm`"),
]

TABLES = (
    "One stream alone",
    "Concurrency on vllm",
    "Concurrency on gguf",
    "From one stream to saturation",
    "Aggregate as prefill alone predicts it, and as measured",
    "How many at once",
    "Lanes: gguf against vllm",
)


def test_vllm_and_llamacpp_in_one_matrix(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    text = EXAMPLE.read_text().replace('"../.', f'"{HOME.absolute()}/.')
    (tmp_path / "plan.toml").write_text(text)
    words = ["--together", "no", "--quiet", "--out", "s", "--json", "-"]
    assert main(["sweep", "plan.toml", *words]) in (0, 4)
    result = json.loads(capsys.readouterr().out)
    assert marked() == []
    assert main(["report", "s"]) in (0, 4)
    shown = capsys.readouterr().out
    with capsys.disabled():
        sys.stdout.write(f"\n{shown}")
    assert {name: target["engine"] for name, target in result["targets"].items()} == {
        "vllm": "vllm",
        "gguf": "llamacpp",
    }
    cells = {cell["cell"]: cell for cell in result["cells"]}
    assert set(cells) == {
        f"{lane}.{context}.c{n}"
        for lane in ("vllm", "gguf")
        for context in ("short", "300")
        for n in (1, 4)
    }
    assert {cell["outcome"] for cell in cells.values()} == {"measured"}
    assert {cell["rounds"] for cell in cells.values()} == {3}
    assert {cell["requests"]["failed"] for cell in cells.values()} == {0}
    assert {cell["ended_by"] for cell in cells.values()} <= {"interval", "rounds_max"}
    assert all(title in shown for title in TABLES)
    assert not open_study(Path("s")).failures()

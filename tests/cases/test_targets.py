"""Cases X: what stands before the engine, and whether it is the right one."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

from concbench.measure.session import LOADING_POLL_S
from concbench.serve.urls import parse_target
from tests.cases.play import DONE, Bench, Line, Run, delta, playing, stream, usage
from tests.servers import reference_server


def test_x01_a_buffering_proxy(bench: Bench) -> None:
    def script(_number: int) -> list[Line]:
        # 20 ms a token, held back and let go every 300 ms.
        lumps = [b"".join(delta(f" w{15 * k + j}") for j in range(15)) for k in range(4)]
        end = [(1.0, data) for data in (delta("", "length"), usage(60), DONE)]
        return [*((0.1 + 0.3 * k, lump) for k, lump in enumerate(lumps)), *end]

    with playing(script) as play:
        run = bench.burst(play.url, n=2, out=60)
    assert run.cell["requests"]["ok"] == 2
    found = run.doubts["buffered_stream"]
    assert found["severity"] == "warning"
    assert found["evidence"]["zero_gap_pct"] > 70
    assert found["evidence"]["events_per_instant"] > 8
    for name in ("icl_ms", "itl_ms", "tpot_ms"):
        assert run.client[name]["n"] == 0
        assert run.client[name]["mean"] is None
    assert run.client["e2e_ms"]["n"] == 2


def load_wait_s(run: Run) -> float:
    """How long the only lane was waited for."""
    return float(run.result["lanes"]["target"]["extra"]["load_wait_s"])


def test_x02_a_model_that_still_loads(bench: Bench) -> None:
    # A proxy lists the model, and answers 502 until the engine behind it is up.
    with reference_server("--ttft-ms", "5", "--itl-ms", "1", "--fault", "html=502@first=3") as url:
        late = bench.burst(url, n=2, out=4)
    assert late.cell["requests"] | {"finish": {}} == {
        "sent": 2, "ok": 2, "failed": 0, "incomplete": 0, "errors": {}, "finish": {},
    }  # fmt: skip
    assert late.result["target"]["first_request_s"] < load_wait_s(late)
    # Three refusals, and a pause after each.
    assert load_wait_s(late) > 3 * LOADING_POLL_S
    assert late.result["target"]["facts_from"]["load_wait_s"] == "measured"

    # Or the server itself says that it loads.
    with reference_server("--ttft-ms", "5", "--itl-ms", "1", "--model-load-s", "3") as url:
        run = bench.burst(url, n=2, out=4)
        warm = bench.burst(url, n=2, out=4)
    assert run.cell["requests"]["ok"] == 2
    assert run.cell["requests"]["failed"] == 0
    assert run.result["target"]["first_request_s"] < 1
    assert run.client["ttft_ms"]["max"] < 1000
    assert load_wait_s(run) > 0.5 > load_wait_s(warm)


def test_x03_spellings_of_the_base_url(bench: Bench) -> None:
    with reference_server("--ttft-ms", "2", "--itl-ms", "1") as url:
        host = urlsplit(url).netloc
        ends = ("", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/v1")
        assert {parse_target(url + end) for end in ends} == {parse_target(host)}
        for spelling in (host, url + "/v1/", url + "/v1/chat/completions"):
            run = bench.burst(spelling, out=2)
            assert run.cell["requests"]["ok"] == 1, spelling
            assert run.result["target"]["base_url"] == url
            # Metrics hang on the root, wherever the API was said to be.
            assert run.result["target"]["engine"] == "vllm"
            assert run.cell["server"]["source"] == "metrics"
        code, error = bench.refused("burst", url + "/v4", "--out", str(bench.folder / "none"))
    assert code == 3
    assert f"{url}/v4/models" in error
    assert "404" in error
    assert f"{url}/v1" in error

    with playing(lambda number: stream([0.0]), prefix="/v4") as play:
        run = bench.burst(play.url + "/v4", out=2)
    assert run.cell["requests"]["ok"] == 1
    posted = {line.split()[1] for line in play.asked if line.startswith("POST")}
    assert posted == {"/v4/chat/completions"}


def test_x06_an_old_server_on_the_port(bench: Bench) -> None:
    with reference_server() as url:
        port = urlsplit(url).port
        plan = bench.folder / "plan.toml"
        words = [sys.executable, "-m", "concbench", "reference", "--port", str(port)]
        plan.write_text(f"[lanes.fresh]\nengine = 'vllm'\ncommand = {words!r}\n")
        out = Path(bench.folder / "none")
        code, error = bench.refused("burst", "fresh", "--plan", str(plan), "--out", str(out))
        other, wrong = bench.refused("burst", url, "--model", "new-model", "--out", str(out))
    assert code == 3
    assert f"port {port} is taken" in error
    assert "pid" in error
    assert other == 3
    assert "does not serve 'new-model'" in wrong
    assert "reference" in wrong
    assert not out.exists()

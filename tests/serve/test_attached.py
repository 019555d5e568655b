from __future__ import annotations

import sys

import pytest

from concbench.errors import NotReady, Unreachable, UsageError, WrongPath
from concbench.plan.model import LanePlan
from concbench.serve.attached import attach_lane, stop_attached
from concbench.serve.http import Access
from concbench.serve.ports import free_port
from tests.serve.server import Reply, models, serving, token
from tests.servers import reference_server


def lane(url: str, **options: object) -> LanePlan:
    return LanePlan(name="x", url=url, **options)  # type: ignore[arg-type]


def test_a_server_that_loads_is_waited_for_and_the_load_is_its_own_time(tmp_path):
    """X02: the load is no part of the first request's time."""
    with reference_server("--persona", "llamacpp", "--model-load-s", "0.5", "--model", "m") as url:
        with attach_lane(lane(url, engine="llamacpp"), Access(), tmp_path / "log", 30) as met:
            assert 0.1 < met.load_wait_s < 5
            assert met.facts.first_request_s < 0.4
            assert met.facts.memory_bytes > 1 << 20
            assert met.attached.extra["load_wait_s"] == met.load_wait_s
            assert met.alive() is None
            assert met.facts.teardown is None
        assert met.attached.http.get("/health").ok


def test_a_deadline_ends_the_wait(tmp_path):
    with (
        reference_server("--model-load-s", "60") as url,
        pytest.raises(NotReady, match="was not ready after"),
    ):
        attach_lane(lane(url), Access(), tmp_path / "log", 0.3)


def test_nothing_listens(tmp_path):
    with pytest.raises(Unreachable, match="connection refused"):
        attach_lane(lane(f"http://127.0.0.1:{free_port()}"), Access(), tmp_path / "log", 5)


def test_another_engine_than_the_plan_says(tmp_path):
    with (
        reference_server("--persona", "vllm") as url,
        pytest.raises(WrongPath, match=r"answered by vLLM, but the lane says llama\.cpp"),
    ):
        attach_lane(lane(url, engine="llamacpp"), Access(), tmp_path / "log", 5)


def test_a_log_command_is_copied_and_ended(tmp_path):
    words = [sys.executable, "-c", "import time; print('said', flush=True); time.sleep(60)"]
    script = {"/v1/models": models("m"), "/v1/chat/completions": token()}
    with serving(script) as server:
        met = attach_lane(lane(server.url, log=words), Access(), tmp_path / "log", 30)
        follower = met.follower
        with met:
            assert follower.poll() is None
    assert follower.poll() is not None
    with pytest.raises(UsageError, match="no-such-program"):
        attach_lane(
            lane("http://127.0.0.1:1", log=["no-such-program"]), Access(), tmp_path / "log", 5
        )


def test_a_stop_command_is_run_and_its_effect_checked(tmp_path):
    with serving({"/": Reply(body=b"up")}) as server:
        failed = stop_attached(
            lane(server.url, stop=[sys.executable, "-c", "raise SystemExit(3)"]), Access(), tmp_path
        )
    assert (failed["exit_code"], failed["answers"]) == (3, True)
    worked = stop_attached(
        lane(server.url, stop=[sys.executable, "-c", "open('done', 'w')"]), Access(), tmp_path
    )
    assert (worked["exit_code"], worked["answers"]) == (0, False)
    assert (tmp_path / "done").exists()
    with pytest.raises(UsageError, match="was not started here"):
        stop_attached(lane("http://h:1"), Access(), tmp_path)

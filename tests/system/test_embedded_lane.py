"""The embedded engine for real: it starts, says what it is, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from concbench.clock import sleep_s
from concbench.errors import MissingExtra, NotReady, PortTaken
from concbench.serve import ports
from concbench.serve.embedded import embedded_recipe, start_embedded
from concbench.serve.http import parse_json
from tests.serve.processes import all_end

pytestmark = pytest.mark.system

TOOL = """
import sys
from pathlib import Path
from concbench.clock import sleep_s
from concbench.serve.embedded import start_embedded
running = start_embedded(1, 256, Path(sys.argv[1]))
print(running.child.pid, running.child.guard.pid, running.port, flush=True)
sleep_s(120)
"""


@pytest.fixture(autouse=True)
def _installed():
    try:
        embedded_recipe(1, 256, {})
    except MissingExtra as error:
        pytest.skip(str(error))


def test_it_starts_answers_tells_and_stops(tmp_path):
    with start_embedded(2, 512, tmp_path / "engine.log", {"cache-type-k": "q8_0"}) as running:
        facts = running.facts
        assert facts.engine == "llamacpp"
        assert facts.engine_version.startswith("xllamacpp ")
        assert facts.model == "SmolLM2-135M-Instruct.Q4_1"
        assert (facts.slots, facts.max_context_tok, facts.quantization) == (2, 512, "Q4_1")
        assert facts.launch[1:3] == ["-m", "concbench.serve.llamacpp_child"]
        assert 0 < running.cold_start["listening_s"] <= facts.cold_start_s
        assert running.alive() is None
        body = {"model": facts.model, "prompt": "Once upon", "max_tokens": 4, "temperature": 0}
        answer = parse_json(running.attached.http.post_json("/v1/completions", body))
        assert answer["usage"]["completion_tokens"] == 4
        for path in ("/metrics", "/slots"):
            assert running.attached.http.get(path).ok
        members = running.child.members()
    teardown = running.facts.teardown
    assert teardown["port_free"] is True
    assert teardown["left_pids"] == []
    assert teardown["rss_before_bytes"] > 50 << 20
    assert all_end(members, 0.0)
    assert ports.is_free(running.port)


def test_the_launch_in_the_facts_runs_again(tmp_path):
    with start_embedded(1, 256, tmp_path / "one.log") as running:
        launch = running.facts.launch
    log = (tmp_path / "two.log").open("wb")
    with log, subprocess.Popen(launch, stdout=log, stderr=log) as again:
        try:
            for _ in range(1500):
                assert again.poll() is None
                if running.attached.http.get("/health").ok:
                    break
                sleep_s(0.02)
            else:
                pytest.fail("it never became healthy")
        finally:
            again.terminate()


def test_a_taken_port_names_the_holder(tmp_path):
    with (
        start_embedded(1, 256, tmp_path / "one.log") as running,
        pytest.raises(PortTaken, match=rf"pid {running.child.pid}"),
    ):
        start_embedded(1, 256, tmp_path / "two.log", port=running.port)


def test_a_broken_model_ends_the_start_at_once(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    with pytest.raises(NotReady, match="exit code 1"):
        start_embedded(1, 256, tmp_path / "engine.log", model_path=broken)


def test_kill_9_of_the_tool_leaves_nothing_running(tmp_path):
    log = tmp_path / "engine.log"
    with subprocess.Popen(
        [sys.executable, "-c", TOOL, str(log)], stdout=subprocess.PIPE, text=True
    ) as tool:
        engine, guard, port = map(int, tool.stdout.readline().split())
        left = [psutil.Process(engine), psutil.Process(guard)]
        tool.kill()
    assert all_end(left)
    assert ports.is_free(port)
    assert "the tool is gone" in Path(log).read_text()


def test_every_flag_is_one_the_engine_has():
    code = (
        "import xllamacpp\n"
        "from concbench.serve.llamacpp_child import CACHE_TYPES, FLAGS, FLASH, SPEC_TYPES, _set\n"
        "samples = {'int': 1, 'float': 0.5, 'bool': True, 'not': True, 'str': 'x'}\n"
        "samples |= {'list': 'x', 'set': 'x', 'onoff': 'on'}\n"
        "params = xllamacpp.CommonParams()\n"
        "for flag, (path, kind) in FLAGS.items():\n"
        "    named = {'cache': CACHE_TYPES, 'flash': FLASH, 'spec': SPEC_TYPES}\n"
        "    choices = named.get(kind) or [samples[kind]]\n"
        "    for value in choices:\n"
        "        before = params\n"
        "        for name in path.split('.'):\n"
        "            before = getattr(before, name)\n"
        "        _set(xllamacpp, params, flag, value)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

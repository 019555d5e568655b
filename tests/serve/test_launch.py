from __future__ import annotations

import json
from pathlib import Path

import pytest

from concbench.errors import UsageError
from concbench.plan.file import parse_plan
from concbench.serve.launch import deadline_s, engine_of, flags_of, recipe_of, varied
from tests.serve.runtimes import install


def lane(text: str):
    return parse_plan(f"[lanes.x]\n{text}").lanes["x"]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with these programs, which do nothing, and a working folder without any."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("llama-server", "vllm", "sglang"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_llamacpp_with_the_program_on_path(tmp_path, programs):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.gguf").write_bytes(b"")
    made = recipe_of(
        lane('engine = "llamacpp"\nmodel = "models/m.gguf"\nflags = { parallel = 8, c = 64 }'),
        tmp_path,
    )
    port = made.url.rsplit(":", 1)[1]
    assert list(made.argv) == [
        str(programs / "llama-server"),
        "--model", str(tmp_path / "models" / "m.gguf"), "--parallel", "8", "-c", "64",
        "--metrics", "--host", "127.0.0.1", "--port", port,
    ]  # fmt: skip
    assert made.model is None


def test_a_port_and_a_host_that_are_given_stay(tmp_path, programs):
    flags = 'flags = { port = 8123, host = "0.0.0.0", metrics = true }'
    made = recipe_of(lane(f'engine = "llamacpp"\nmodel = "m.gguf"\n{flags}'), tmp_path)
    assert made.url == "http://127.0.0.1:8123"
    assert made.argv[3:] == ("--port", "8123", "--host", "0.0.0.0", "--metrics")


def test_a_repository_and_a_router(tmp_path, programs):
    made = recipe_of(lane('engine = "llamacpp"\nmodel = "org/repo:Q4_0"'), tmp_path)
    assert made.argv[1:3] == ("--hf-repo", "org/repo:Q4_0")
    router = 'engine = "llamacpp"\nmodel = "small"\nflags = { models-dir = "/m", models-max = 2 }'
    made = recipe_of(lane(router), tmp_path)
    assert made.argv[1:5] == ("--models-dir", "/m", "--models-max", "2")
    assert made.model == "small"


def test_without_the_program_the_wheel_takes_the_same_flags(tmp_path, monkeypatch):
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("PATH", str(tmp_path))
    model = tmp_path / "Tiny.gguf"
    model.write_bytes(b"")
    text = 'engine = "llamacpp"\nmodel = "Tiny.gguf"\nflags = { np = 2, ctx_size = 64, ctk = "q8_0"'
    made = recipe_of(lane(f"{text} }}"), tmp_path)
    settings = json.loads(made.argv[4])
    assert (settings["parallel"], settings["ctx-size"], settings["cache-type-k"]) == (2, 64, "q8_0")
    assert settings["model"] == str(model)
    assert "--cache-type-k" in made.spoken
    with pytest.raises(UsageError, match="embedded build has no router"):
        recipe_of(lane(f'{text}, models-dir = "x" }}'), tmp_path)
    with pytest.raises(UsageError, match="did you mean ubatch-size"):
        recipe_of(lane(f"{text}, ubatch-siz = 4 }}"), tmp_path)


def test_vllm_and_sglang(tmp_path, programs):
    made = recipe_of(
        lane('engine = "vllm"\nmodel = "org/m"\nflags = { enforce-eager = true }\nenv = { A = 1 }'),
        tmp_path,
    )
    assert made.argv[1:6] == ("serve", "org/m", "--enforce-eager", "--host", "127.0.0.1")
    assert made.env == {"A": "1"}
    made = recipe_of(lane('engine = "sglang"\nmodel = "org/m"'), tmp_path)
    assert made.argv[1:5] == ("serve", "--model-path", "org/m", "--enable-metrics")


def test_a_program_in_an_environment_beside_the_plan(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    program = tmp_path / ".venv-vllm" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text("")
    made = recipe_of(lane('engine = "vllm"\nmodel = "m"'), tmp_path)
    assert made.argv[0] == str(program)
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match=r"neither on PATH nor in \.venv-vllm"):
        recipe_of(lane('engine = "vllm"\nmodel = "m"'), tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="no such program"):
        recipe_of(lane('engine = "vllm"\nmodel = "m"\nflags = { bin = "none" }'), tmp_path)


def test_a_whole_command(tmp_path):
    made = recipe_of(lane('command = ["vllm", "serve", "m"]\nmodel = "name"'), tmp_path)
    assert made.engine == "vllm"
    assert made.argv[:3] == ("vllm", "serve", "m")
    assert made.argv[3] == "--port"
    assert (made.model, made.cwd) == ("name", tmp_path)
    made = recipe_of(lane('command = ["./bin/serve", "--port", "{port}"]'), tmp_path)
    assert made.argv[0] == str(tmp_path / "bin" / "serve")
    assert made.url.endswith(made.argv[2])
    made = recipe_of(lane('command = ["ollama", "serve"]\nmodel = "m"'), tmp_path)
    assert made.env["OLLAMA_HOST"] == made.url.removeprefix("http://")
    made = recipe_of(lane('command = ["bash", "-c", "vllm serve m"]\nengine = "vllm"'), tmp_path)
    assert made.url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('command = ["serve-it"]', r"write \{port\}"),
        ('command = ["docker", "run", "vllm/vllm-openai"]', "would outlive its client"),
        ('url = "http://h:1"', "is attached to"),
    ],
)
def test_what_cannot_be_started_says_why(tmp_path, text, says):
    with pytest.raises(UsageError, match=says):
        recipe_of(lane(text), tmp_path)


def test_a_container(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch)
    text = (
        'container = { image = "vllm/vllm-openai:v0.32.0", args = ["--model", "m"], '
        'options = ["--gpus", "all"] }\nmodel = "m"'
    )
    made = recipe_of(lane(text), tmp_path)
    assert made.engine == "vllm"
    assert made.container.inside_port == 8000
    assert made.url == f"http://127.0.0.1:{made.container.host_port}"
    assert made.spoken == ["--model", "m"]
    shared = recipe_of(lane(text.replace('"all"', '"all", "--network=host"')), tmp_path)
    assert shared.container.host_port is None
    assert shared.container.args[-2] == "--port"
    assert shared.url.endswith(shared.container.args[-1])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="is not on PATH"):
        recipe_of(lane(text), tmp_path)


def test_engine_deadline_and_flags():
    boxed = lane('container = { image = "vllm/vllm-openai:v1", args = ["--max-num-seqs", "4"] }')
    assert engine_of(boxed) == "vllm"
    assert flags_of(boxed) == {"max-num-seqs": "4"}
    assert deadline_s(boxed) > deadline_s(lane('url = "http://h:1"')) > 100
    assert engine_of(lane('url = "http://h:1"')) == "openai"
    assert flags_of(lane('url = "http://h:1"')) == {}


def test_a_varied_lane():
    flags = varied(lane('engine = "vllm"\nmodel = "m"\nflags = { seed = 1 }'), {"seed": 2})
    assert flags.flags == {"seed": 2}
    command = varied(lane('command = ["vllm", "serve", "m", "--seed", "1"]'), {"seed": 2})
    assert command.command == ["vllm", "serve", "m", "--seed", "2"]
    text = 'container = { image = "vllm/vllm-openai", args = ["--seed=1"] }'
    assert varied(lane(text), {"seed": 2}).container.args == ["--seed", "2"]
    with pytest.raises(UsageError, match="runs already"):
        varied(lane('url = "http://h:1"'), {"seed": 2})


def test_relative_folders_count_from_the_plan(tmp_path):
    made = recipe_of(lane('command = ["vllm", "serve", "m"]\ncwd = "sub"'), Path("some"))
    assert made.cwd == Path.cwd() / "some" / "sub"

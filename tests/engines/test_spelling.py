from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.engines.llamacpp_words import DIALECT as LLAMACPP
from concbench.engines.registry import ENGINES
from concbench.engines.sglang_words import DIALECT as SGLANG
from concbench.engines.spelling import command_words, positional, read_words
from concbench.engines.vllm import DIALECT as VLLM
from concbench.errors import UsageError

SPELT = [
    ("vllm", {"max-num-seqs": 8, "enforce_eager": True}, "--max-num-seqs 8 --enforce-eager"),
    ("vllm", {"enable-prefix-caching": False}, "--no-enable-prefix-caching"),
    ("vllm", {"disable-log-stats": False}, ""),
    ("vllm", {"tp": 2, "tensor_parallel_size": 2}, "-tp 2 --tensor-parallel-size 2"),
    ("vllm", {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3}},
     '--speculative-config {"method":"mtp","num_speculative_tokens":3}'),
    ("vllm", {"speculative_config.num_speculative_tokens": 3},
     "--speculative-config.num_speculative_tokens 3"),
    ("vllm", {"served-model-name": ["a", "b"]}, "--served-model-name a b"),
    ("vllm", {"gpu-memory-utilization": 0.85}, "--gpu-memory-utilization 0.85"),
    ("vllm", {"--api-key": "x"}, "--api-key x"),
    ("llamacpp", {"parallel": 8, "ctx-size": 65536}, "--parallel 8 --ctx-size 65536"),
    ("llamacpp", {"np": 8, "c": 4096, "fa": "on", "ngl": 99, "no-kvu": True},
     "-np 8 -c 4096 -fa on -ngl 99 -no-kvu"),
    ("llamacpp", {"kv_unified": False, "metrics": False, "slots": True},
     "--no-kv-unified --slots"),
    ("llamacpp", {"tensor-split": [3, 1], "lora": ["a", "b"]},
     "--tensor-split 3,1 --lora a --lora b"),
    ("llamacpp", {"chat-template-kwargs": {"enable_thinking": False}},
     '--chat-template-kwargs {"enable_thinking":false}'),
    ("sglang", {"cuda_graph_bs": [1, 2, 4], "disable-radix-cache": True, "enable-metrics": False},
     "--cuda-graph-bs 1 2 4 --disable-radix-cache"),
    ("trtllm", {"max-batch-size": 8, "max_num_tokens": 2048},
     "--max_batch_size 8 --max_num_tokens 2048"),
    ("tgi", {"max_concurrent_requests": 128}, "--max-concurrent-requests 128"),
    ("llama-swap", {"config": "c.yaml"}, "--config c.yaml"),
    ("lmstudio", {"port": 1234}, "--port 1234"),
    ("openai", {"some_flag": "x"}, "--some-flag x"),
    ("ollama", {}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "flags", "words"), SPELT)
def test_flags_become_words(engine, flags, words):
    assert ENGINES[engine].to_argv(flags) == words.split()


def test_ollama_has_no_flags():
    with pytest.raises(UsageError, match="OLLAMA_NUM_PARALLEL"):
        ENGINES["ollama"].to_argv({"parallel": 8})


READ = [
    (VLLM, "vllm serve /m --max-num-seqs 8 --enforce-eager --max_model_len=4k",
     {"max-num-seqs": "8", "enforce-eager": True, "max-model-len": "4k"}),
    (VLLM, "vllm serve /m --no-enable-prefix-caching -tp 2 -q fp8",
     {"enable-prefix-caching": False, "tensor-parallel-size": "2", "quantization": "fp8"}),
    (VLLM, "vllm serve /m --served-model-name a b --port 1",
     {"served-model-name": ["a", "b"], "port": "1"}),
    (VLLM, "vllm serve /m --served-model-name a", {"served-model-name": "a"}),
    (VLLM, "vllm serve -sc.method mtp -sc.num_speculative_tokens=3 -cc.cudagraph_mode=NONE",
     {"speculative-config": {"method": "mtp", "num_speculative_tokens": "3"},
      "compilation-config": {"cudagraph_mode": "NONE"}}),
    (LLAMACPP, "llama-server -m a.gguf -c 8192 -np 8 -fa -ngl -1 --metrics -no-kvu",
     {"model": "a.gguf", "ctx-size": "8192", "parallel": "8", "flash-attn": True,
      "gpu-layers": "-1", "metrics": True, "kv-unified": False}),
    (LLAMACPP, "llama-server --draft-max 5 -md d.gguf -kvu --parallel 2 --parallel 4",
     {"spec-draft-n-max": "5", "spec-draft-model": "d.gguf", "kv-unified": True,
      "parallel": "4"}),
    (SGLANG, "python -m sglang.launch_server --model /m --tp 2 --cuda-graph-bs 1 2 --port 3",
     {"m": "sglang.launch_server", "model-path": "/m", "tp-size": "2",
      "cuda-graph-bs": ["1", "2"], "port": "3"}),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "line", "flags"), READ)
def test_words_become_flags(dialect, line, flags):
    assert read_words(line.split(), dialect) == flags


def test_json_values_are_read():
    words = ["--speculative-config", '{"method": "mtp"}', "--allowed-origins", '["*"]', "--x", "{"]
    assert read_words(words, VLLM) == {
        "speculative-config": {"method": "mtp"},
        "allowed-origins": ["*"],
        "x": "{",
    }


def test_shells_and_containers_are_stripped():
    engine = ["--model", "m", "--max-num-seqs", "8"]
    docker = ["docker", "run", "-m", "32g", "-p", "8000:8000", "-v", "/data/x:/x", "--name", "v"]
    assert command_words([*docker, "vllm/vllm-openai:v0.32.0", *engine]) == engine
    assert command_words(["/usr/bin/podman", "run", "registry:5000/a/b@sha256:0f", *engine]) == (
        engine
    )
    assert command_words(["bash", "-c", "exec vllm serve 'a b' --port 1"])[2:] == [
        "serve", "a b", "--port", "1",
    ]  # fmt: skip
    assert command_words(["bash", "-c", "unbalanced 'quote"]) == ["unbalanced", "'quote"]
    assert command_words([]) == []
    assert command_words(["docker", "run", "image", "x"]) == ["docker", "run", "image", "x"]


def test_positional():
    assert positional(["vllm", "serve", "/m", "--x"], "serve") == "/m"
    assert positional(["vllm", "serve", "--x"], "serve") is None
    assert positional(["python", "-m", "x"], "serve") is None
    assert positional(None, "serve") is None


NAME = st.from_regex(r"[a-z]{2,8}(-[a-z]{2,6}){0,2}", fullmatch=True).filter(
    lambda name: not name.startswith("no-") and name not in LLAMACPP.switches | LLAMACPP.repeated
)
VALUE = st.one_of(
    st.integers(0, 10**9),
    st.from_regex(r"[a-z0-9./]{1,12}", fullmatch=True),
    st.just(True),
)


@settings(deadline=None)
@given(st.dictionaries(NAME.filter(lambda n: n not in LLAMACPP.aliases), VALUE, max_size=6))
def test_what_is_spelt_is_read_back(flags):
    words = ENGINES["llamacpp"].to_argv(flags)
    expected = {name: value if value is True else str(value) for name, value in flags.items()}
    assert read_words(words, LLAMACPP) == expected


@settings(deadline=None)
@given(st.lists(st.text(max_size=6)))
def test_any_words_are_survived(words):
    for engine in ENGINES.values():
        engine.describe({}, words, [])
        engine.traps({}, words, {}, 4)

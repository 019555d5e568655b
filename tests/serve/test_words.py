from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.serve.words import (
    address_in,
    flags_in,
    masked,
    masked_env,
    masked_extra,
    named,
    takes_port,
    with_flags,
    with_port,
)


@pytest.mark.parametrize(
    ("argv", "env", "engine", "address"),
    [
        (["llama-server", "--port", "81"], {}, "llamacpp", ("127.0.0.1", 81)),
        (["llama-server"], {"LLAMA_ARG_PORT": "82"}, "llamacpp", ("127.0.0.1", 82)),
        (["vllm", "serve", "m", "--host", "0.0.0.0", "--port=83"], {}, "vllm", ("127.0.0.1", 83)),
        (["vllm", "serve", "m", "--host", "10.1.2.3"], {}, "vllm", ("10.1.2.3", None)),
        (["bash", "-c", "vllm serve m --port 84"], {}, "vllm", ("127.0.0.1", 84)),
        (["llama-swap", "--listen", ":85"], {}, "llama-swap", ("127.0.0.1", 85)),
        (["ollama", "serve"], {"OLLAMA_HOST": "localhost:86"}, "ollama", ("127.0.0.1", 86)),
        (["ollama", "serve"], {}, "ollama", ("127.0.0.1", None)),
        (["x", "--port", "many"], {}, "vllm", ("127.0.0.1", None)),
    ],
)
def test_where_a_command_listens(argv, env, engine, address):
    assert address_in(argv, env, engine) == address


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "sglang", "llama-swap", "ollama", "tgi"])
def test_an_added_port_is_read_back(engine):
    argv, env = with_port(["program"], {"A": "b"}, engine, 1234)
    assert address_in(argv, env, engine) == ("127.0.0.1", 1234)
    assert env["A"] == "b"


def test_nothing_is_added_to_a_shell_or_an_unknown_program():
    assert takes_port(["vllm", "serve"], "vllm")
    assert not takes_port(["bash", "-c", "vllm serve m"], "vllm")
    assert not takes_port(["serve"], "openai")


def test_flags_by_canonical_names_from_words_and_from_a_plan():
    assert flags_in(["x", "-c", "8", "-np", "2"], "llamacpp") == {"ctx-size": "8", "parallel": "2"}
    assert named({"c": 8, "np": 2, "kv-unified": False}, "llamacpp") == {
        "ctx-size": "8",
        "parallel": "2",
        "kv-unified": False,
    }


@pytest.mark.parametrize(
    ("argv", "changes", "engine", "after"),
    [
        (["s", "-c", "8", "-np", "2"], {"ctx-size": 9}, "llamacpp",
         ["s", "-np", "2", "--ctx-size", "9"]),
        (["s", "--port=1", "-kvu"], {"kv-unified": False}, "llamacpp",
         ["s", "--port=1", "--no-kv-unified"]),
        (["v", "serve", "m", "--no-enable-prefix-caching", "--x", "1"],
         {"enable-prefix-caching": True}, "vllm",
         ["v", "serve", "m", "--x", "1", "--enable-prefix-caching"]),
        (["v", "--cudagraph-capture-sizes", "1", "2", "4", "--x", "y"],
         {"cudagraph-capture-sizes": [8]}, "vllm",
         ["v", "--x", "y", "--cudagraph-capture-sizes", "8"]),
        (["v", "--speculative-config.method", "mtp", "--enforce-eager"],
         {"speculative-config": {"method": "eagle"}}, "vllm",
         ["v", "--enforce-eager", "--speculative-config", '{"method":"eagle"}']),
    ],
)  # fmt: skip
def test_changed_flags(argv, changes, engine, after):
    assert with_flags(argv, changes, engine) == after


@given(st.lists(st.sampled_from(["--a", "-b", "1", "x=y", "--c=2", "--no-a"]), max_size=8))
def test_after_a_change_the_new_value_is_read(argv):
    assert flags_in(with_flags(["p", *argv], {"a": 5}, "openai"), "openai")["a"] == "5"


def test_keys_are_hidden():
    assert masked(["x", "--api-key", "k1", "--hf-token=k2", "--monkey", "1"]) == [
        "x", "--api-key", "***", "--hf-token=***", "--monkey", "1",
    ]  # fmt: skip
    assert masked_env({"HF_TOKEN": "k", "MONKEYS": "2"}) == {"HF_TOKEN": "***", "MONKEYS": "2"}


def test_a_command_line_among_the_further_facts_is_masked():
    extra = {"upstream_launch": ["llama-server", "--api-key", "k"], "loaded": True}
    assert masked_extra(extra) == {
        "upstream_launch": ["llama-server", "--api-key", "***"],
        "loaded": True,
    }
    assert masked_extra({"upstream_launch": None}) == {"upstream_launch": None}

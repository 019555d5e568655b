from __future__ import annotations

import re

import pytest

from concbench.engines.failures import diagnose
from concbench.engines.registry import ENGINES
from tests.engines.answers import text_of

FAILURES = [
    ("vllm", "oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("vllm", "oom", "ValueError: Free memory on device cuda:0 (3.1/23.5 GiB) on startup is less "
     "than desired GPU memory utilization (0.9, 21.2 GiB)."),
    ("vllm", "oom", "ValueError: No available memory for the cache blocks. Try increasing "
     "`gpu_memory_utilization` when initializing the engine."),
    ("vllm", "oom", "ValueError: To serve at least one request with the models's max seq len "
     "(32768), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory "
     "(4.85 GiB)."),
    ("vllm", "oom", "ValueError: The model's max seq len (131072) is larger than the maximum "
     "number of tokens that can be stored in KV cache (37344)."),
    ("vllm", "other", "ValueError: User-specified max_model_len (65536) is greater than the "
     "derived max_model_len (max_position_embeddings=32768)."),
    ("vllm", "port_taken", "OSError: [Errno 98] Address already in use"),
    ("vllm", "unknown_flag", "vllm: error: unrecognized arguments: --max-num-seq 8"),
    ("vllm", "unknown_flag", "api_server.py: error: argument --speculative-config/-sc: Value "
     "{method: mtp} cannot be converted to <function loads>."),
    ("vllm", "unknown_flag", "api_server.py: error: argument --port: invalid int value: 'x'"),
    ("vllm", "model_missing", "OSError: /models/nope is not a local folder and is not a valid "
     "model identifier listed on the hub"),
    ("vllm", "model_missing", "huggingface_hub.errors.HFValidationError: Repo id must be in the "
     "form 'repo_name' or 'namespace/repo_name'"),
    ("vllm", "model_missing", "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the "
     "requested files in the disk cache"),
    ("vllm", "model_missing", "OSError: /m does not appear to have a file named config.json."),
    ("vllm", "unsupported", "ValueError: Model architectures ['FooForCausalLM'] are not supported "
     "for now."),
    ("vllm", "unsupported", "ValueError: Bfloat16 is only supported on GPUs with compute "
     "capability of at least 8.0."),
    ("vllm", "unsupported", "ValueError: The quantization method modelopt_fp4 is not supported "
     "for the current GPU. Minimum capability: 100."),
    ("vllm", "unsupported", "RuntimeError: CUDA error: no kernel image is available for execution "
     "on the device"),
    ("llamacpp", "port_taken", "srv  start: couldn't bind HTTP server socket, hostname: "
     "127.0.0.1, port: 8080"),
    ("llamacpp", "unknown_flag", "error: invalid argument: --paralel"),
    ("llamacpp", "unknown_flag", "error while handling argument \"--parallel\": stoi"),
    ("llamacpp", "model_missing", "gguf_init_from_file: failed to open GGUF file '/m/x.gguf'"),
    ("llamacpp", "model_missing", "gguf_init_from_reader: invalid magic characters: '<htm', "
     "expected 'GGUF'"),
    ("llamacpp", "model_missing", "llama_model_load: error loading model: tensor 'a' data is not "
     "within the file bounds, model is corrupted or incomplete"),
    ("llamacpp", "unsupported", "llama_model_load: error loading model: error loading model "
     "architecture: unknown model architecture: 'foo'"),
    ("llamacpp", "oom", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on "
     "device 0: cudaMalloc failed: out of memory"),
    ("llamacpp", "oom", "llama_model_load: error loading model: unable to allocate CUDA0 buffer"),
    ("llamacpp", "oom", "llama_init_from_model: failed to initialize the context: failed to "
     "allocate buffer for kv cache"),
    ("llamacpp", "oom", "graph_reserve: failed to allocate compute buffers"),
    ("llamacpp", "oom", "ggml_vulkan: Device memory allocation failed: ErrorOutOfDeviceMemory"),
    ("llamacpp", "oom", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("llamacpp", "unsupported", "Illegal instruction (core dumped)"),
    ("llamacpp", "other", "srv    load_model: failed to load model, '/m/x.gguf'"),
    ("sglang", "port_taken", "ERROR: [Errno 98] error while attempting to bind on address "
     "('127.0.0.1', 30000): address already in use"),
    ("sglang", "oom", "RuntimeError: Not enough memory. Please try to increase "
     "--mem-fraction-static."),
    ("sglang", "oom", "Exception: Capture cuda graph failed: CUDA out of memory."),
    ("sglang", "unknown_flag", "launch_server.py: error: unrecognized arguments: --nope"),
    ("sglang", "other", "ValueError: Warning: User-specified context_length (9) is greater than "
     "the derived context_length (8)."),
    ("llama-swap", "port_taken", "listen tcp 127.0.0.1:8080: bind: address already in use"),
    ("llama-swap", "unknown_flag", "flag provided but not defined: -nope"),
    ("llama-swap", "other", "Error loading config: yaml: line 3: mapping values"),
    ("llama-swap", "other", "health check timed out after 120s"),
    ("ollama", "port_taken", "Error: listen tcp 127.0.0.1:11434: bind: address already in use"),
    ("ollama", "model_missing", "model 'nope' not found"),
    ("ollama", "oom", "model requires more system memory (9.5 GiB) than is available (4.0 GiB)"),
    ("trtllm", "unknown_flag", "Error: No such option: --nope"),
    ("trtllm", "unknown_flag", "Extra inputs are not permitted [type=extra_forbidden]"),
    ("tgi", "unknown_flag", "error: unexpected argument '--nope' found"),
    ("tgi", "oom", "Not enough memory to handle 4096 prefill tokens."),
    ("openai", "oom", "oom-kill:constraint=CONSTRAINT_MEMCG"),
    ("openai", "unknown_flag", "json.decoder.JSONDecodeError: Expecting value"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "outcome", "line"), FAILURES)
def test_known_failures(engine, outcome, line):
    found = diagnose(ENGINES[engine].start_failures, ["starting", line + "\n", "Traceback"])
    assert found is not None
    failure, shown = found
    assert failure.outcome == outcome
    assert shown == line
    assert failure.advice


@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_a_start_that_went_well_shows_no_failure(engine):
    start = text_of(f"{engine}/server.log").splitlines()
    assert diagnose(ENGINES[engine].start_failures, start) is None


def test_a_particular_cause_beats_a_general_one():
    lines = [
        "srv load_model: failed to load model, 'x'",
        "cudaMalloc failed: out of memory",
    ]
    found = diagnose(ENGINES["llamacpp"].start_failures, lines)
    assert found is not None
    assert found[0].outcome == "oom"


def test_patterns_are_sound():
    for engine in ENGINES.values():
        for failure in engine.start_failures:
            assert re.compile(failure.pattern).search("") is None

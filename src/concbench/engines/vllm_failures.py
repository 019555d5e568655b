"""Why vLLM fails to start: what its log says, the cause, and what to do."""

from __future__ import annotations

from concbench.engines.failures import COMMON, GPU
from concbench.engines.spec import StartFailure

START_FAILURES: tuple[StartFailure, ...] = (
    StartFailure(
        r"Free memory on device .*(?:less than|lower than) desired GPU memory utilization",
        "the GPU has less free memory than --gpu-memory-utilization claims",
        "stop what else uses the GPU, or lower --gpu-memory-utilization",
        "oom",
    ),
    StartFailure(
        r"No available memory for the cache blocks|larger than the "
        r"(?:available KV cache memory|maximum number of tokens that can be stored)",
        "no memory is left for one full-length request's KV cache",
        "lower --max-model-len, raise --gpu-memory-utilization, or quantize the KV cache",
        "oom",
    ),
    StartFailure(
        r"(?:Not enough|less) (?:available )?memory.*(?:VLLM_CPU_KVCACHE_SPACE|node \d)|"
        r"Available memory on node \d.* less than requested memory for kv",
        "the CPU's memory is too small for the KV cache asked for",
        "lower VLLM_CPU_KVCACHE_SPACE or --max-model-len",
        "oom",
    ),
    StartFailure(
        r"max_model_len \(\d+\) is greater than the derived max_model_len",
        "the context asked for is larger than the model's own",
        "lower --max-model-len to what the model was made for",
        "other",
    ),
    StartFailure(
        r"The quantization method .* is not supported for the current GPU|"
        r"Model architectures \[.*\] (?:are not supported|failed to be inspected)|"
        r"Unknown quantization method|Failed to infer device type|"
        r"Bfloat16 is only supported on GPUs with compute capability",
        "this model, quantization or precision does not run on this device with this vLLM",
        "take another checkpoint or a newer vLLM, or set --dtype half on an old GPU",
        "unsupported",
    ),
    StartFailure(
        r"argument -{1,2}[\w/-]+: (?:Value .* cannot be converted|Invalid JSON)",
        "a flag that takes JSON was given something else",
        "check the quotes of the JSON value",
        "unknown_flag",
    ),
    *GPU,
    *COMMON,
)

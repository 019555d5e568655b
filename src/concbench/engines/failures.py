"""Why engines fail to start: patterns on log lines that several engines share.

The order matters: the first pattern that matches any line names the cause, so particular ones
come before general ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from concbench.engines.reading import clean
from concbench.engines.spec import StartFailure

GPU: tuple[StartFailure, ...] = (
    StartFailure(
        r"(?i)CUDA out of memory|CUDA error: out of memory|OutOfMemoryError|HIP out of memory|"
        r"(?:cuda|hip)Malloc failed: out of memory|cuMemCreate.*out of memory|"
        r"CUDA_ERROR_OUT_OF_MEMORY|ErrorOutOfDeviceMemory|NCCL.*out of memory",
        "the GPU's memory ran out while starting",
        "stop what else uses the GPU, or use less context, fewer sequences or a smaller model",
        "oom",
    ),
    StartFailure(
        r"no kernel image is available|CUDA driver version is insufficient|"
        r"no CUDA-capable device|No CUDA GPUs are available|invalid device function|"
        r"libcuda\.so\.1: cannot open shared object|unsupported (?:GPU|gpu) architecture|"
        r"CUDA capability sm_\d+ is not compatible",
        "this build does not fit the GPU or its driver",
        "use a build for this GPU's architecture, or update the driver",
        "unsupported",
    ),
)

COMMON: tuple[StartFailure, ...] = (
    StartFailure(
        r"(?i)address already in use|\bErrno 98\b|EADDRINUSE|couldn't bind (?:HTTP )?server socket|"
        r"only one usage of each socket address",
        "another program already listens on the port",
        "stop it, or give this lane another port",
        "port_taken",
    ),
    StartFailure(
        r"unrecognized arguments?:|error: invalid argument:|flag provided but not defined|"
        r"(?i:no such option)|unexpected argument '|unknown (?:shorthand )?flag|"
        r"error while handling argument|argument [-\w/]+: invalid|expected (?:one|at least one) "
        r"argument|ambiguous option:|invalid choice:",
        "the engine does not know a flag, or not that value of it",
        "correct the flag's spelling, or use an engine version that has it",
        "unknown_flag",
    ),
    StartFailure(
        r"is not a valid model identifier|Repository Not Found|RepositoryNotFoundError|"
        r"LocalEntryNotFoundError|HFValidationError|Repo id must|GatedRepoError|"
        r"Invalid repository ID or local directory|couldn't find them in the cached files|"
        r"(?i:couldn't connect to .* to load (?:the|this) file)|does not appear to have a file "
        r"named|OfflineModeIsEnabled|No such file or directory: .*(?:config\.json|\.gguf|"
        r"\.safetensors)",
        "the model is not there, and could not be fetched",
        "check the model's path or name; without a network it must be on this machine",
        "model_missing",
    ),
    StartFailure(
        r"(?i)std::bad_alloc|DefaultCPUAllocator: can't allocate memory|\bMemoryError\b|"
        r"Out of memory: Killed process|Cannot allocate memory|oom-kill",
        "the machine's memory ran out while starting",
        "use a smaller model or less context, or stop other programs",
        "oom",
    ),
    StartFailure(
        r"JSONDecodeError|Invalid JSON (?:string|config)",
        "a configuration is not valid JSON",
        "check the quotes and commas of flags and files that hold JSON",
        "unknown_flag",
    ),
    StartFailure(
        r"Illegal instruction",
        "the build uses instructions that this CPU does not have",
        "use a build for this CPU",
        "unsupported",
    ),
)


def diagnose(
    failures: Iterable[StartFailure], log_lines: Iterable[str]
) -> tuple[StartFailure, str] | None:
    """Return the first failure that any line shows, with that line; None when none is known."""
    lines = [clean(line) for line in log_lines]
    for failure in failures:
        pattern = re.compile(failure.pattern)
        for line in lines:
            if pattern.search(line):
                return failure, line.strip()
    return None

"""How SGLang spells its command line, old names included."""

from __future__ import annotations

from concbench.engines.spelling import Dialect

DIALECT = Dialect(
    aliases={
        "model": "model-path",
        "tp": "tp-size",
        "tensor-parallel-size": "tp-size",
        "dp": "dp-size",
        "data-parallel-size": "dp-size",
        "pp": "pp-size",
        "pipeline-parallel-size": "pp-size",
        "ep": "ep-size",
        "max-context-length": "context-length",
        "speculative-draft-model": "speculative-draft-model-path",
        "cuda-graph-max-bs-decode": "cuda-graph-max-bs",
        "cuda-graph-bs-decode": "cuda-graph-bs",
    },
    switches=frozenset(
        {
            "trust-remote-code",
            "disable-radix-cache",
            "disable-cuda-graph",
            "enable-metrics",
            "enable-cache-report",
            "enable-mixed-chunk",
            "enable-dp-attention",
            "enable-torch-compile",
            "enable-hierarchical-cache",
            "allow-auto-truncate",
            "skip-server-warmup",
            "disable-overlap-schedule",
            "disable-cuda-graph-padding",
        }
    ),
    many=frozenset({"cuda-graph-bs", "lora-paths", "bucket-time-to-first-token"}),
)

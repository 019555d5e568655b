"""Which model it is: a hash of its files, and what files beside the weights say.

Files over `WHOLE_BYTES` are hashed by their first and last 64 MiB and their size, and the value
says so (`partial-sha256:…`). Hashes are kept in the user's cache by path, size and time of change.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from concbench.engines.reading import dig, facts, merge, whole
from concbench.engines.spec import Fact

WHOLE_BYTES = 1 << 30
PART_BYTES = 64 << 20
_STEP = 4 << 20
_WEIGHTS = ("*.safetensors", "*.gguf", "*.bin")
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens")


def model_facts(model_path: str | None, generation_config: str | None = None) -> dict[str, Fact]:
    """Return what the model's own files tell; empty where they are not on this machine.

    Keys: `model_hash`, `model_bytes`, `weights_bytes`, for a folder also `quantization` and
    `sampling_defaults` (the latter only where `generation_config` is `auto`, as vLLM applies it).
    """
    path = Path(model_path) if model_path else None
    if path is None or not path.exists():
        return {}
    files = [path] if path.is_file() else _weight_files(path)
    if not files:
        return {}
    size = sum(file.stat().st_size for file in files)
    told = facts("file", model_hash=_hash_all(files), model_bytes=size, weights_bytes=size)
    if path.is_file():
        return told
    config = _json(path / "config.json")
    sampling = _json(path / "generation_config.json") if generation_config == "auto" else {}
    return merge(
        told,
        facts(
            "file",
            quantization=_quantization(config),
            sampling_defaults={k: sampling[k] for k in _SAMPLING if k in sampling} or None,
        ),
    )


def file_hash(path: Path, cache: Path | None = None) -> str:
    """Return `sha256:…`, or `partial-sha256:…` for a large file. Raises OSError."""
    stat = path.stat()
    key = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    kept_in = cache or cache_folder() / "model-hashes.json"
    known = _json(kept_in)
    if isinstance(known.get(key), str):
        return str(known[key])
    value = _hash(path, stat.st_size)
    # A cache that cannot be written costs time, nothing else.
    with suppress(OSError):
        kept_in.parent.mkdir(parents=True, exist_ok=True)
        staged = kept_in.with_name(f"{kept_in.name}.{os.getpid()}")
        staged.write_text(json.dumps({**known, key: value}, indent=0))
        staged.replace(kept_in)
    return value


def cache_folder() -> Path:
    """Return the user's cache of this tool."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "concbench"


def _hash(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= WHOLE_BYTES:
            while part := file.read(_STEP):
                digest.update(part)
            return f"sha256:{digest.hexdigest()}"
        digest.update(file.read(PART_BYTES))
        file.seek(size - PART_BYTES)
        digest.update(file.read(PART_BYTES))
    digest.update(str(size).encode())
    return f"partial-sha256:{digest.hexdigest()}"


def _hash_all(files: list[Path]) -> str | None:
    """Return the file's hash, or for several one over names and hashes."""
    with suppress(OSError):
        hashes = [file_hash(file) for file in files]
        if len(files) == 1:
            return hashes[0]
        partial = any(value.startswith("partial") for value in hashes)
        listing = "".join(
            f"{file.name} {value}\n" for file, value in zip(files, hashes, strict=True)
        )
        label = "partial-sha256" if partial else "sha256"
        return f"{label}:{hashlib.sha256(listing.encode()).hexdigest()}"
    return None


def _weight_files(folder: Path) -> list[Path]:
    for pattern in _WEIGHTS:
        if found := sorted(folder.glob(pattern)):
            return found
    return []


def _quantization(config: Mapping[str, Any]) -> str | None:
    """Return the checkpoint's quantization (`awq 4-bit`), else the type of its weights."""
    quantized = config.get("quantization_config")
    method = dig(quantized, "quant_method")
    if isinstance(method, str):
        bits = whole(dig(quantized, "bits")) or whole(
            dig(quantized, "config_groups", "group_0", "weights", "num_bits")
        )
        return method + (f" {bits}-bit" if bits else "")
    kind = config.get("dtype") or config.get("torch_dtype")
    return kind if isinstance(kind, str) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

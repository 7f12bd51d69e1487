"""Flags that people know from other servers and that are not ours: a refusal by name.

vLLM's, SGLang's and llama.cpp's names (October 2026) with the nearest flag here, or a word on
what to do instead, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FOREIGN: dict[str, str] = {
    # vLLM
    "--async-scheduling": "",
    "--attention-backend": "",
    "--chat-template": "",
    "--collect-detailed-traces": "--otlp-traces-endpoint",
    "--cpu-offload-gb": "",
    "--data-parallel-size": "--verifiers",
    "--disable-log-stats": "",
    "--distributed-executor-backend": "--address",
    "--download-dir": "the environment variable PILOTFISH_CACHE or HF_HOME",
    "--enable-auto-tool-choice": "",
    "--enable-chunked-prefill": "--max-num-batched-tokens (prefill is always chunked)",
    "--enable-force-include-usage": "stream_options.include_usage in the request",
    "--enable-lora": "",
    "--enable-per-request-metrics": "",
    "--generation-config": "",
    "--gpu-memory-utilization": "--kv-cache-memory-bytes",
    "--hf-token": "the environment variable HF_TOKEN",
    "--kv-cache-dtype": "--dtype",
    "--kv-transfer-config": "",
    "--load-format": "",
    "--logits-processors": "",
    "--lora-modules": "",
    "--max-lora-rank": "",
    "--max-loras": "",
    "--num-gpu-blocks-override": "--kv-cache-memory-bytes",
    "--num-speculative-tokens": "--spec-tokens",
    "--per-request-spec-decode-metrics": "",
    "--pipeline-parallel-size": "--tensor-parallel-size",
    "--quantization": "--dtype",
    "--reasoning-parser": "",
    "--scheduling-policy": "the request's own priority field, which is always honoured",
    "--seed": "seed in the request",
    "--speculative-model": "--spec-model",
    "--ssl-certfile": "--tls-certificate",
    "--ssl-keyfile": "--tls-key",
    "--stream-interval": "",
    "--swap-space": "",
    "--tool-call-parser": "",
    "--trust-remote-code": "",
    "-dp": "--verifiers",
    "-pp": "--tensor-parallel-size",
    "-q": "--dtype",
    # SGLang
    "--dp": "--verifiers",
    "--mem-fraction-static": "--kv-cache-memory-bytes",
    "--model-path": "--model",
    "--speculative-algorithm": "--spec-method",
    "--speculative-draft-model-path": "--spec-model",
    "--speculative-num-draft-tokens": "--spec-tokens",
    "--speculative-num-steps": "--spec-tokens",
    "--tp": "--tensor-parallel-size",
    "--tp-size": "--tensor-parallel-size",
    # llama.cpp
    "--model-draft": "--spec-model",
    "--spec-draft-model": "--spec-model",
    "--spec-draft-n-max": "--spec-tokens",
    "--spec-type": "--spec-method",
    "-md": "--spec-model",
}


def normalised(arguments: Sequence[str]) -> list[str]:
    """vLLM takes --max_model_len for --max-model-len; so do we. Values stay as they are."""
    out = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            argument = "--" + name[2:].replace("_", "-") + equals + value
        out.append(argument)
    return out


def refusal(arguments: Sequence[str], foreign: Mapping[str, str] = FOREIGN) -> str | None:
    """One line for the first foreign flag among the arguments, or None."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in foreign:
            nearest = foreign[name]
            return f"{name} is not supported" + (f"; nearest: {nearest}" if nearest else "")
        if name.startswith("--speculative-config."):
            return f"{name} is not supported; nearest: --speculative-config with a JSON object"
    return None

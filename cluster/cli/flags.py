"""Every flag of `pilotfish serve` in one table: its name, the field it sets, its help.

Names are vLLM's where vLLM has the flag. A flag that is not given leaves the field to the
defaults of `cluster.config`, which are also what the help shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from cluster.config import AppArgs


@dataclass(frozen=True, slots=True)
class Flag:
    """`path` leads into AppArgs; `help` is used where the field has no description; `negative` is
    the name that switches off what the flag switches on."""

    name: str
    path: tuple[str, ...]
    help: str = ""
    short: str | None = None
    panel: str = "Model"
    negative: str | None = None

    @property
    def key(self) -> str:
        """The parameter name: --max-model-len is max_model_len."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.name, self.negative, self.short) if name is not None)

    @property
    def declarations(self) -> tuple[str, ...]:
        """`names` as typer wants them: what switches on and off is one declaration."""
        if self.negative is None:
            return self.names
        return (f"{self.name}/{self.negative}",)


_SPEC = "speculative_config"

FLAGS: tuple[Flag, ...] = (
    Flag("--served-model-name", ("served_model_name",), "Name in the API; default: the model's."),
    Flag("--tokenizer", ("tokenizer",), "Hugging Face id or folder; default: the model's own."),
    Flag("--revision", ("revision",), "Revision of a Hugging Face id."),
    Flag("--dtype", ("dtype",), "auto, bfloat16, float32 or float64."),
    Flag(
        "--max-model-len",
        ("max_model_len",),
        "Context in tokens, 8k form too; default: the model's.",
    ),
    Flag("--max-num-seqs", ("max_num_seqs",), panel="Engine"),
    Flag("--max-num-batched-tokens", ("max_num_batched_tokens",), panel="Engine"),
    Flag("--max-num-queued-reqs", ("max_num_queued_reqs",), "Requests waiting.", panel="Engine"),
    Flag("--max-num-queued-tokens", ("max_num_queued_tokens",), panel="Engine"),
    Flag("--block-size", ("block_size",), "Tokens of one KV block.", panel="Engine"),
    Flag(
        "--kv-cache-memory-bytes",
        ("kv_cache_memory_bytes",),
        "Size of the KV cache, 2G form too; default: for --max-num-seqs, within what is free.",
        panel="Engine",
    ),
    Flag(
        "--enable-prefix-caching",
        ("enable_prefix_caching",),
        panel="Engine",
        negative="--no-enable-prefix-caching",
    ),
    Flag(
        "--enforce-eager",
        ("enforce_eager",),
        "transformers' own classes compute, never the native executor.",
        panel="Engine",
    ),
    Flag(
        "--batch-invariant",
        ("batch_invariant",),
        "The same bits in any batch and at any draft length; refused where that cannot be had.",
        panel="Engine",
    ),
    Flag(
        "--tensor-parallel-size",
        ("tensor_parallel_size",),
        "Processes, with GPUs one each, that share a verifier's target.",
        short="-tp",
        panel="Engine",
    ),
    Flag(
        "--verifier-threads",
        ("verifier", "threads"),
        "torch threads of a verifier; default: its CPUs.",
        panel="Engine",
    ),
    Flag(
        "--speculative-config",
        (_SPEC,),
        "JSON object with vLLM's keys, or a list of them that the policy chooses from; null is "
        "standard decode.",
        short="-sc",
        panel="Speculation",
    ),
    Flag("--spec-method", (_SPEC, "method"), panel="Speculation"),
    Flag("--spec-model", (_SPEC, "model"), panel="Speculation"),
    Flag("--spec-tokens", (_SPEC, "num_speculative_tokens"), panel="Speculation"),
    Flag("--verifiers", ("verifier", "num_replicas"), "Verifier replicas.", panel="Cluster"),
    Flag("--drafters", ("drafter", "num_replicas"), "Drafter replicas.", panel="Cluster"),
    Flag(
        "--verifier-gpus",
        ("verifier", "num_gpus"),
        "GPUs of each rank of a verifier.",
        panel="Cluster",
    ),
    Flag("--drafter-gpus", ("drafter", "num_gpus"), "GPUs of a drafter.", panel="Cluster"),
    Flag(
        "--cohorts",
        ("cohorts",),
        "JSON array of rules that name a request's cohort (docs/cohorts.md); default: none.",
        panel="Doors",
    ),
    Flag("--grpc-port", ("gateway", "grpc_port"), panel="Doors"),
    Flag("--tls-certificate", ("gateway", "tls_certificate"), panel="Doors"),
    Flag("--tls-key", ("gateway", "tls_key"), panel="Doors"),
    Flag(
        "--otlp-traces-endpoint",
        ("otlp_traces_endpoint",),
        "OpenTelemetry collector, OTLP over gRPC; default: no traces.",
        panel="Doors",
    ),
)

BY_NAME: dict[str, Flag] = {flag.name: flag for flag in FLAGS}


def help_of(flag: Flag) -> str:
    """The help line with the default from the configuration's own class."""
    field, default = _field(AppArgs(), flag.path)
    text = flag.help or field.description or flag.path[-1].replace("_", " ")
    shown = default is not None and not isinstance(default, BaseModel) and "efault:" not in text
    return f"{text} [default: {default}]" if shown else text


def _field(args: BaseModel, path: tuple[str, ...]) -> tuple[Any, Any]:
    """The pydantic field at `path` and its value in `args`."""
    node: Any = args
    for step in path[:-1]:
        node = getattr(node, step)
    field = type(node).model_fields[path[-1]]
    value = getattr(node, path[-1])
    return field, None if value is PydanticUndefined else value

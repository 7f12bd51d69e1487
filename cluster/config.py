"""The typed arguments of `cluster.app:build`: one place for names, bounds and help.

Field names are vLLM's where vLLM has them (reference: `--max-model-len`, `--speculative-config`,
…), so that people's configurations carry over. An unknown key is refused, the known ones named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from actors.sampling.rules import DEFAULT, Rule
from cluster.autoscaling_args import Autoscaling
from cluster.cohort_rules import CohortRule, cohorts_of

Dtype = Literal["auto", "bfloat16", "float32", "float64"]
Method = Literal[
    "ngram", "suffix", "draft_model", "eagle3", "mtp", "dflash", "dspark", "custom_class"
]

_LOSSY = frozenset({"synthetic", "fly", "typical"})
"""Rules of other systems that change what the target would have written."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SpeculativeConfig(_Strict):
    """How drafts are made (vLLM's `--speculative-config` keys)."""

    method: Method = Field("suffix", description="Drafting mechanism.")
    model: str | None = Field(
        None,
        description="A Hugging Face id or folder of a draft model or learned drafter; "
        "custom_class: module:Class.",
    )
    revision: str | None = Field(None, description="Revision of the draft model.")
    num_speculative_tokens: int = Field(4, ge=0, le=32, description="Draft length D; 0 is off.")
    feature_format: Literal["auto", "raw"] = Field(
        "auto",
        description="What remote drafters are sent of the target's hidden states. auto: through "
        "the drafter's first linear map, where it has one; raw: as tapped.",
    )
    feature_dtype: Literal["bf16", "fp8"] = Field(
        "bf16", description="On the wire; fp8 has one scale per 64 channels."
    )
    run_ahead: bool = Field(
        False,
        description="Remote drafters go on past a block while the target verifies it: worth it "
        "where they have devices of their own.",
    )
    adaptive: bool = Field(
        True,
        description="D is the most; each step verifies what is expected to pay, often nothing in "
        "large batches. false: always D.",
    )
    rejection_sample_method: Rule = Field(
        DEFAULT,
        description="How drafts of sampled requests are accepted, without loss. coupled: a seed "
        "gives the text of standard decode. rejection (vLLM's 'standard') and block: with a draft "
        "model more is accepted; a seed repeats its text with the same drafter and lengths only.",
    )
    draft_tensor_parallel_size: Literal[1] = Field(
        1, description="As in vLLM; a drafter is one process, and many serve beside each other."
    )
    placement: Literal["remote", "colocated"] = Field(
        "remote", description="Drafters as deployments of their own, or inside the verifier."
    )
    num_drafters: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="Drafter replicas of this mechanism; default: drafter.num_replicas.",
    )
    use_heterogeneous_vocab: bool = Field(
        False,
        description="draft_model: its vocabulary may be another than the target's; tokens of the "
        "same text are drafted.",
    )
    prompt_lookup_max: int = Field(5, ge=1, le=32, description="ngram: longest match.")
    prompt_lookup_min: int = Field(2, ge=1, le=32, description="ngram: shortest match.")
    enable_suffix_decoding: bool = Field(
        False,
        description="Suffix decoding beside a drafter that computes: it drafts where the text "
        "repeats itself and it expects more of it (Arctic's name).",
    )
    suffix_decoding_max_tree_depth: int = Field(24, ge=2, le=64)
    suffix_decoding_max_cached_requests: int = Field(
        0, ge=0, description="Shared tree over finished requests of one tenant; 0 is off."
    )
    suffix_decoding_max_spec_factor: float = Field(1.0, gt=0)
    suffix_decoding_min_token_prob: float = Field(0.1, ge=0, le=1)
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="custom_class: keyword arguments."
    )

    @field_validator("method", mode="before")
    @classmethod
    def _method(cls, value: object) -> object:
        """vLLM's older names for heads inside a target: deepseek_mtp, qwen3_next_mtp, …"""
        return "mtp" if isinstance(value, str) and value.endswith("_mtp") else value

    @field_validator("rejection_sample_method", mode="before")
    @classmethod
    def _rule(cls, value: object) -> object:
        if isinstance(value, str) and value in _LOSSY:
            raise ValueError(f"{value!r} changes what the target writes; strict rules alone serve")
        return "rejection" if value == "standard" else value

    @model_validator(mode="after")
    def _consistent(self) -> SpeculativeConfig:
        if self.method == "custom_class" and not self.model:
            raise ValueError(f"method {self.method!r} needs 'model'")
        if self.feature_dtype != "bf16" and self.placement != "remote":
            raise ValueError(
                "feature_dtype needs placement 'remote': a co-located drafter reads the target's "
                "own hidden states"
            )
        if self.num_drafters is not None and self.placement != "remote":
            raise ValueError(
                "num_drafters needs placement 'remote': each verifier has its own co-located one"
            )
        if self.run_ahead and self.placement != "remote":
            raise ValueError(
                "run_ahead needs placement 'remote': a co-located drafter cannot run "
                "beside the target"
            )
        if self.run_ahead and self.rejection_sample_method != DEFAULT:
            raise ValueError(
                f"run_ahead needs the rule {DEFAULT!r}: under the others a block is "
                "verified as it was asked for"
            )
        if self.model and self.method in ("ngram", "suffix"):
            given = (
                "has no" if "method" in self.model_fields_set else "is not given, and suffix has no"
            )
            raise ValueError(
                f"method {given} 'model'; `pilotfish drafter inspect {self.model}` says what it is"
            )
        if self.use_heterogeneous_vocab and self.method != "draft_model":
            raise ValueError("use_heterogeneous_vocab is for method 'draft_model'")
        if self.enable_suffix_decoding and self.method in ("ngram", "suffix"):
            raise ValueError(
                f"enable_suffix_decoding is for drafters that compute; {self.method} alone does"
            )
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError("prompt_lookup_min is larger than prompt_lookup_max")
        return self

    @property
    def mechanism(self) -> str:
        """What drafts: the method, and what is beside it."""
        return f"{self.method}+suffix" if self.enable_suffix_decoding else self.method


class PoolArgs(_Strict):
    """Replicas of one deployment and what each is given."""

    num_replicas: int = Field(1, ge=0, le=1024)
    num_cpus: float = Field(1.0, ge=0)
    num_gpus: float = Field(0.0, ge=0)
    threads: int | None = Field(None, ge=1, description="torch threads; default: num_cpus.")


class GatewayArgs(_Strict):
    """The door: HTTP comes through Serve's proxy, gRPC is the gateway's own server."""

    num_replicas: int = Field(1, ge=1, le=64)
    num_cpus: float = Field(0.3, ge=0)
    grpc_host: str = "127.0.0.1"
    grpc_port: int = Field(0, ge=0, le=65535, description="0: any free port.")
    tls_certificate: str | None = Field(None, description="PEM file; gRPC then speaks TLS.")
    tls_key: str | None = Field(None, description="PEM file.")
    api_key_env: str = Field(
        "PILOTFISH_API_KEY", description="Environment variable with the key, when one is wanted."
    )
    takeover_timeout_s: float = Field(
        60.0, gt=0, description="How long a request waits for another verifier."
    )

    @model_validator(mode="after")
    def _tls(self) -> GatewayArgs:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key come together")
        return self


class PolicyArgs(_Strict):
    """The policy actor. What it knows comes back from the verifiers when it is restarted."""

    state_path: str | None = Field(
        None,
        description="A file that its state outlives a restart of everything in, on a disk that "
        "each node where it may run sees.",
    )


class AppArgs(_Strict):
    """Everything `build` needs. `model` is a name of `pilotfish models list`, a Hugging Face id
    or a local folder."""

    model: str = "smollm2"
    served_model_name: str | None = None
    tokenizer: str | None = None
    revision: str | None = None
    dtype: Dtype = "auto"
    max_model_len: int | None = Field(None, ge=2)
    max_num_seqs: int = Field(32, ge=1, le=4096, description="Requests decoded at once.")
    max_num_batched_tokens: int = Field(512, ge=1, description="Rows of one forward.")
    max_num_queued_reqs: int = Field(
        1024, ge=1, description="Requests waiting; more are refused with 429."
    )
    max_num_queued_tokens: int | None = Field(
        None, ge=1, description="Tokens of the requests waiting, in all; default: no bound."
    )
    block_size: int = Field(16, ge=1, le=256)
    kv_cache_memory_bytes: int | None = Field(
        None, ge=1, description="Default: for max_num_seqs, within what is free."
    )
    enable_prefix_caching: bool = Field(
        True, description="Share the KV of common prefixes, within one tenant and cache_salt."
    )
    enforce_eager: bool = Field(
        False, description="transformers' own classes compute: no native executor, no CUDA graphs."
    )
    batch_invariant: bool = Field(
        False,
        description="A request's output is the same bits in any batch, at any draft length, with "
        "prefix hits and preemption; a model or machine that cannot give this is refused.",
    )
    tensor_parallel_size: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes (with GPUs: one each) that share a verifier's target. What the "
        "verifier pool gives, each of them is given.",
    )
    speculative_config: SpeculativeConfig | None = Field(
        default_factory=SpeculativeConfig,
        description="How to draft; null is standard decode. Of a list of them the policy chooses "
        "while serving, and the first is the default.",
    )
    other_mechanisms: tuple[SpeculativeConfig, ...] = Field(
        (), description="Where speculative_config was a list: those after the first."
    )
    verifier: PoolArgs = PoolArgs()
    drafter: PoolArgs = PoolArgs(num_cpus=0.3, threads=1)
    autoscaling: Autoscaling = Field(
        Autoscaling(), description="Replicas by load, instead of num_replicas."
    )
    gateway: GatewayArgs = GatewayArgs()
    policy: PolicyArgs = PolicyArgs()
    cohorts: tuple[CohortRule, ...] = Field(
        (), description="Rules; the first that takes a request names its cohort, else 'default'."
    )
    otlp_traces_endpoint: str | None = None
    data_host: str | None = Field(
        None,
        description="Address data-plane servers bind; default: loopback on one node, "
        "the node's address on a cluster.",
    )

    @field_validator("cohorts")
    @classmethod
    def _bounded(cls, rules: tuple[CohortRule, ...]) -> tuple[CohortRule, ...]:
        cohorts_of(rules)
        return rules

    @model_validator(mode="before")
    @classmethod
    def _several(cls, given: object) -> object:
        """A list of mechanisms as the first and the others."""
        if not isinstance(given, Mapping):
            return given
        several = given.get("speculative_config")
        if not isinstance(several, list | tuple):
            return given
        if not several or any(one is None for one in several):
            raise ValueError(
                "speculative_config: a list has at least one mechanism; null is standard decode"
            )
        if given.get("other_mechanisms"):
            raise ValueError("other_mechanisms and a list of speculative_config: give the list")
        return {**given, "speculative_config": several[0], "other_mechanisms": several[1:]}

    @model_validator(mode="after")
    def _together(self) -> AppArgs:
        """Mechanisms that one engine has at the same time."""
        if self.other_mechanisms and self.speculative_config is None:
            raise ValueError("other_mechanisms are beside a speculative_config, and it is null")
        kinds = [f"{one.mechanism}@{one.placement}" for one in self.mechanisms]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ValueError(f"speculative_config has {kind} twice")
        for name in ("adaptive", "rejection_sample_method"):
            if len({getattr(one, name) for one in self.mechanisms}) > 1:
                raise ValueError(
                    f"speculative_config: {name} is the engine's, and must be the same everywhere"
                )
        return self

    @property
    def mechanisms(self) -> tuple[SpeculativeConfig, ...]:
        """Every way to draft, the default first."""
        first = self.speculative_config
        return () if first is None else (first, *self.other_mechanisms)

    @property
    def num_speculative_tokens(self) -> int:
        """D, the most for any mechanism."""
        return max((one.num_speculative_tokens for one in self.mechanisms), default=0)

    def only(self, mechanism: SpeculativeConfig) -> AppArgs:
        """The same application with one mechanism alone."""
        return self.model_copy(update={"speculative_config": mechanism, "other_mechanisms": ()})

    @model_validator(mode="after")
    def _scaled(self) -> AppArgs:
        counted = {
            "verifier.num_replicas": "num_replicas" in self.verifier.model_fields_set,
            "drafter.num_replicas": "num_replicas" in self.drafter.model_fields_set,
            "num_drafters": any(one.num_drafters is not None for one in self.mechanisms),
        }
        remote = any(one.placement == "remote" for one in self.mechanisms)
        self.autoscaling.check({name for name, given in counted.items() if given}, remote=remote)
        return self

    @model_validator(mode="after")
    def _supported(self) -> AppArgs:
        if self.tensor_parallel_size > 1 and self.verifier.num_gpus not in (0.0, 1.0):
            raise ValueError(
                "with tensor_parallel_size above 1 each rank takes one GPU or none, not "
                f"{self.verifier.num_gpus:g}"
            )
        return self


def as_given(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where a validation error is in what was given: the others of a list count from the second."""
    if len(loc) > 1 and loc[0] == "other_mechanisms" and isinstance(loc[1], int):
        return ("speculative_config", loc[1] + 1, *loc[2:])
    return loc

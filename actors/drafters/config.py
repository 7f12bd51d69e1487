"""What a drafter is built from; plain values, so it crosses process borders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from actors.sampling.rules import DEFAULT, Rule

FeatureFormat = Literal["auto", "raw"]
FeatureDtype = Literal["bf16", "fp8"]
Option = str | int | float | bool


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """One mechanism and what it must know of the target. The first fields are those of the
    speculative configuration, under the same names.

    method: a name of `actors.drafters.table.BUILDERS`.
    model: a Hugging Face id or folder of a draft model or learned drafter; custom_class:
        module:Class.
    options: custom_class: keyword arguments of the class.
    num_speculative_tokens: the longest block ever asked for.
    run_ahead: whether chains go on past a block while the target verifies it.
    rejection_sample_method: the acceptance rule; where it weighs laws, sampled drafts bring theirs.
    use_heterogeneous_vocab: draft_model: its vocabulary may be another than the target's; tokens
        of the same text are drafted.
    feature_format: "auto": a verifier elsewhere sends features through the drafter's first map,
        where it has one; "raw": as tapped. feature_dtype: "bf16" or "fp8", on the wire.
    enable_suffix_decoding: put suffix decoding beside the method: its blocks where it expects more.
    suffix_decoding_max_cached_requests: finished responses that stay in the shared trees of all
        tenants together; 0 is off. suffix_decoding_max_cached_tokens bounds their sum.
    suffix_decoding_share_untenanted: whether sessions without a tenant count as one tenant (a
        deployment of one team) or share nothing.
    target: the target's folder or Hugging Face id: learned drafters share its embedding and head.
    target_vocab_size: rows of the target's output embedding; 0 is unknown.
    target_tokenizer: folder or id of the target's tokenizer; "" leaves it unchecked.
    max_context: positions the target serves (max_model_len); 0 is no bound.
    prefill_rows: a drafter's rows of one forward that catches up, all sessions together.
    compile_cache: folder of compiled kernels, for small models on a CPU; empty computes in torch.
    """

    method: str
    model: str | None = None
    revision: str | None = None
    num_speculative_tokens: int = 4
    run_ahead: bool = False
    rejection_sample_method: Rule = DEFAULT
    feature_format: FeatureFormat = "raw"
    feature_dtype: FeatureDtype = "bf16"
    use_heterogeneous_vocab: bool = False
    prompt_lookup_max: int = 5
    prompt_lookup_min: int = 2
    enable_suffix_decoding: bool = False
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 0
    suffix_decoding_max_cached_tokens: int = 250_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    suffix_decoding_share_untenanted: bool = True
    options: Mapping[str, Option] = field(default_factory=dict)
    target: str = ""
    target_revision: str | None = None
    target_vocab_size: int = 0
    target_tokenizer: str = ""
    dtype: str = "auto"
    device: str = "cpu"
    threads: int | None = None
    max_context: int = 0
    prefill_rows: int = 256
    compile_cache: str = ""

    @property
    def mechanism(self) -> str:
        """What its drafters call themselves; of a custom class only it knows, and this is empty."""
        if self.method == "custom_class":
            return ""
        beside = self.enable_suffix_decoding and self.method not in ("ngram", "suffix")
        return f"{self.method}+suffix" if beside else self.method

    @property
    def max_ahead(self) -> int:
        """The longest chain: a block, the guess of the target's own token, a block after it."""
        return 2 * self.num_speculative_tokens + 1 if self.run_ahead else 0

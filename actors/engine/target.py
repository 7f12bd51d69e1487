"""The target model: packed rows in, logits of the deciding rows out, features on the side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from actors.engine.attention import ATTENTION, PagedStep, Step
from actors.engine.batch import StepBatch
from actors.engine.closeness import apart, tolerance
from actors.engine.errors import ModelLoadError
from actors.engine.hybrid.install import install
from actors.engine.kv import KVPool
from actors.engine.loading import end_tokens
from actors.engine.state import Layer, state_specification


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What the rest of the engine needs to know of a model."""

    vocab_size: int
    eos_ids: frozenset[int]
    spec: tuple[Layer, ...]
    hidden_size: int
    num_layers: int
    dtype: torch.dtype


class Target:
    """A transformers causal LM behind the paged cache.

    taps: indices into transformers' `hidden_states`, pre-norm: 0 is the embedding output, i the
    output of layer i-1. They are captured in the same forward, at no extra cost but the copy.
    """

    def __init__(self, model: Any, taps: tuple[int, ...] = (), device: str = "cpu") -> None:
        self.model = model
        self.device = device
        text = model.config.get_text_config()
        self.info = TargetInfo(
            vocab_size=int(model.get_output_embeddings().weight.shape[0]),
            eos_ids=end_tokens(model),
            spec=state_specification(model.config),
            hidden_size=int(text.hidden_size),
            num_layers=int(text.num_hidden_layers),
            dtype=model.dtype,
        )
        install(model)
        self.taps = taps
        self._captured: dict[int, torch.Tensor] = {}
        self._hook_taps()

    def _hook_taps(self) -> None:
        if not self.taps:
            return
        layers = self.model.get_decoder().layers
        for tap in self.taps:
            if not 0 <= tap <= self.info.num_layers:
                raise ModelLoadError(f"tap {tap} is outside 0 … {self.info.num_layers}", "taps")
            if tap == 0:
                layers[0].register_forward_pre_hook(self._capture_input, with_kwargs=True)
            else:
                layers[tap - 1].register_forward_hook(self._capture_output(tap))

    def _capture_input(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._captured[0] = args[0] if args else kwargs["hidden_states"]

    def _capture_output(self, tap: int) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            self._captured[tap] = output[0] if isinstance(output, tuple) else output

        return hook

    @property
    def feature_dim(self) -> int:
        return len(self.taps) * self.info.hidden_size

    @torch.inference_mode()
    def forward(self, batch: StepBatch, pool: KVPool) -> torch.Tensor:
        """Logits [len(batch.keep), vocab] in the model's dtype; writes KV and features of all
        rows into the pool."""
        step = PagedStep(batch, pool)
        return self.compute(batch.ids, batch.positions, batch.slots, step, batch.keep)

    def compute(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        step: Step,
        keep: torch.Tensor | int,
    ) -> torch.Tensor:
        """The forward of whatever `step` attends with; keep: 0 keeps all rows' logits."""
        logits: torch.Tensor = self.model(
            input_ids=ids,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=keep,
            paged_step=step,
        ).logits[0]
        if step.layers != list(range(self.info.num_layers)):
            # One cache a layer: a second call would overwrite the first one's rows.
            raise ModelLoadError(
                f"{self.model.config.model_type}: attention and recurrence ran for layers "
                f"{step.layers}, not once for each",
                param="model",
            )
        if step.pool.features is not None:
            rows = torch.cat([self._captured[tap][0] for tap in self.taps], dim=-1)
            step.pool.features.index_copy_(0, slots, rows.to(torch.bfloat16))
            self._captured.clear()
        return logits

    @torch.inference_mode()
    def reference(self, batch: StepBatch) -> torch.Tensor:
        """Logits [rows, vocab] of one whole sequence by transformers' own attention, no cache."""
        self.model.set_attn_implementation("eager")
        try:
            logits: torch.Tensor = self.model(input_ids=batch.ids, use_cache=False).logits[0]
        finally:
            self.model.set_attn_implementation(ATTENTION)
        return logits

    @torch.inference_mode()
    def check_attention(self, pool_for_check: KVPool, probe: StepBatch) -> None:
        """Compare one short forward with transformers' own attention, before serving anything.

        A model whose attention does more than this project's function (soft caps, sinks, other
        positions) would answer wrongly without a word; here it is refused by name.
        """
        kind = self.model.config.model_type
        try:
            ours = self.forward(probe, pool_for_check).float()
        except ModelLoadError:
            raise
        except Exception as error:
            reason = f"{kind}: a forward through the paged cache failed: {error!r}"
            raise ModelLoadError(reason, param="model") from error
        theirs = self.reference(probe).float()
        self._captured.clear()
        off = apart(ours, theirs[probe.keep])
        if not off <= tolerance(self.info.dtype):
            raise ModelLoadError(
                f"{kind}: the paged attention differs from transformers' "
                f"own by {off:.1e} of the logits' norm; this architecture is not supported",
                param="model",
            )

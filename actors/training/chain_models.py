"""EAGLE-3 and MTP as the chains that `chain_trainee` trains."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from actors.drafters.learned.blocks import Attend, DecoderLayer, Rope
from actors.drafters.learned.eagle_model import EagleLayer, EagleModel, EagleSpec
from actors.drafters.learned.mtp_model import MtpModel, MtpSpec, MtpStage
from actors.training.attend import KeyValue
from actors.training.errors import TrainingError


class EagleChain:
    """One layer; the features of its taps come first in a row."""

    def __init__(self, spec: EagleSpec) -> None:
        if spec.layers != 1 or spec.slots:
            raise TrainingError("EAGLE-3 is trained with one layer, as a chain", "layers")
        self.spec = spec
        self.module: EagleModel = EagleModel(spec)
        self.layer_spec = spec.layer
        self.columns = slice(0, spec.feature_dim)
        self.inverse = torch.ones(spec.feature_dim)

    def set_scale(self, scale: torch.Tensor) -> None:
        self.inverse = 1.0 / scale[: self.spec.feature_dim]

    @torch.no_grad()
    def begin(self, scale: torch.Tensor) -> None:
        """What the layer gets first is the last tap, which its own states replace later on, in
        units that bring each of its dimensions to size one; the norm before the head undoes that.
        Follows `set_scale` and `start_norm`."""
        hidden = self.spec.target_hidden
        size = scale[: self.spec.feature_dim][-hidden:]
        self.module.fc.weight.zero_()
        self.module.fc.weight[:, -hidden:] = torch.eye(hidden)
        self.module.norm.weight.mul_(size / size.pow(2).mean().sqrt())

    @torch.no_grad()
    def read(self, embedded: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """What attention reads of entries, [rows, 2 · hidden]."""
        hidden = self.layer.hidden_norm(self.first(features))
        return torch.cat((self.layer.input_layernorm(embedded), hidden), -1)

    @property
    def layer(self) -> EagleLayer:
        found = self.module.layers[0]
        assert isinstance(found, EagleLayer)
        return found

    def first(self, features: torch.Tensor) -> torch.Tensor:
        return self.module.fuse(features * self.inverse)

    def keys(
        self, embedded: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor
    ) -> KeyValue:
        layer, rope = self.layer, self.module.rope
        x = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(hidden)), -1)
        return layer.self_attn.key_value(x, rope, rope(positions))

    def step(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.module(embedded, hidden, positions, attend)
        return self.module.recycled(z), self.module.output(z)

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        spec = self.spec
        facts: dict[str, Any] = {
            "num_hidden_layers": spec.layers,
            "taps": list(spec.taps),
            "norm_before_residual": spec.norm_before_residual,
            "norm_before_fc": spec.norm_before_fc,
            "fc_norm": spec.fc_norm,
            "norm_output": spec.norm_output,
        }
        tensors = dict(self.module.state_dict())
        tensors["fc.weight"] = tensors["fc.weight"] * self.inverse
        return tensors, facts


class MtpChain:
    """One stage, used again for each further draft; the target's last state ends a row."""

    def __init__(self, spec: MtpSpec, final_norm: torch.Tensor) -> None:
        if spec.stages != 1:
            raise TrainingError("MTP is trained with one stage, used again and again", "layers")
        self.spec = spec
        self._model = MtpModel(spec)
        self._model.final_norm.weight = nn.Parameter(final_norm.clone(), requires_grad=False)
        self.module: nn.Module = self._model.stages[0]  # the final norm is the target's
        self.layer_spec = spec.layer
        self.columns = slice(-spec.layer.hidden, None)

    def set_scale(self, scale: torch.Tensor) -> None:
        """What it reads is normed."""

    @property
    def stage(self) -> MtpStage:
        assert isinstance(self.module, MtpStage)
        return self.module

    @property
    def rope(self) -> Rope:
        assert isinstance(self._model.rope, Rope)
        return self._model.rope

    def first(self, features: torch.Tensor) -> torch.Tensor:
        return self._model.feature(features)

    def keys(
        self, embedded: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor
    ) -> KeyValue:
        stage, block = self.stage, self.stage.block
        assert isinstance(block, DecoderLayer)
        parts = (stage.enorm(embedded), stage.hnorm(hidden))
        x = stage.eh_proj(torch.cat(parts[::-1] if stage.hidden_first else parts, -1))
        return block.self_attn.key_value(block.input_layernorm(x), self.rope, self.rope(positions))

    def step(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = self._model(0, embedded, hidden, positions, attend)
        return out, out

    def export(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        return dict(self.module.state_dict()), {"hidden_first": self.spec.hidden_first}

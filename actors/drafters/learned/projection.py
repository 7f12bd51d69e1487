"""A drafter's first map, made by the verifier: features then cross the wire as wide as the drafter,
not as wide as all taps together (DESIGN §7, Bytes).

DFlash, DSpark and EAGLE-3 begin with one linear map that is the same for all their layers; MTP
mixes each row with an embedding first, so there is nothing that could be shared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from actors.drafters.checkpoints.head import LoadedHead
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.drafters.learned.block_head import BlockHeadSpec
from actors.drafters.learned.block_model import BlockModel
from actors.drafters.learned.eagle_model import EagleModel, EagleSpec
from actors.drafters.learned.load import find
from actors.drafters.learned.placing import place
from actors.exchange.form import FeatureForm, Projection
from actors.exchange.fp8 import GROUP

Map = Callable[[torch.Tensor], torch.Tensor]


def digest_of(head: LoadedHead) -> str:
    """Of the weights of a head's first map, as they are stored; "" where it has none."""
    made = _first_map(head)
    if made is None:
        return ""
    module, _ = made
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode() + b"\0")
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def feature_form(config: DrafterConfig, device: str, compile_cache: str) -> FeatureForm:
    """What a verifier on `device` does to features before it sends them to drafters of `config`.
    Raises DrafterLoadError."""
    from actors.drafters.table import LEARNED

    if config.method not in LEARNED:
        return FeatureForm()
    head = find(config, config.method).head
    made = _first_map(head) if config.feature_format == "auto" else None
    if made is None:
        _check_fp8(config, len(head.taps) * head.target_hidden)
        return FeatureForm(dtype=config.feature_dtype)
    module, first = made
    # One thread: what computes beside it is the target.
    here = replace(config, device=device, compile_cache=compile_cache, threads=1)
    dtype, _ = place(module, here)

    @torch.inference_mode()
    def project(rows: torch.Tensor) -> torch.Tensor:
        return first(rows.to(device, dtype)).to("cpu", torch.bfloat16)

    width = int(head.spec.block.layer.hidden if _is_block(head) else head.spec.layer.hidden)
    _check_fp8(config, width)
    return FeatureForm(Projection(project, width, digest_of(head)), config.feature_dtype)


def _check_fp8(config: DrafterConfig, width: int) -> None:
    if config.feature_dtype == "fp8" and width % GROUP:
        raise DrafterLoadError(
            f"features of {width} channels cannot be sent in fp8, which scales {GROUP} together",
            "feature_dtype",
        )


def _is_block(head: LoadedHead) -> bool:
    return isinstance(head.spec, BlockHeadSpec)


def _first_map(head: LoadedHead) -> tuple[nn.Module, Map] | None:
    """The part of the model up to its layers, with the head's weights, and its function."""
    model: BlockModel | EagleModel
    if isinstance(head.spec, BlockHeadSpec):
        model = BlockModel(replace(head.spec.block, layers=0))
        first: Map = model.context
    elif isinstance(head.spec, EagleSpec):
        model = EagleModel(replace(head.spec, layers=0))
        first = model.fuse
    else:
        return None
    own = {name: head.tensors[name] for name in model.state_dict()}
    model.load_state_dict(own, assign=True)
    return model, first

"""Drafting mechanisms by name. A new one is one file and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from actors.contracts import Drafter
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError

Builder = Callable[[DrafterConfig], Drafter]


def build_drafter(config: DrafterConfig) -> Drafter:
    """The drafter of `config.method`; raises DrafterLoadError when it cannot be had."""
    builder = BUILDERS.get(config.method)
    if builder is None:
        raise DrafterLoadError(
            f"unknown method {config.method!r}; known: {', '.join(sorted(BUILDERS))}", "method"
        )
    drafter = builder(config)
    if not config.enable_suffix_decoding or config.method in ("ngram", "suffix"):
        return drafter
    from actors.drafters.combined import CombinedDrafter

    return CombinedDrafter(drafter, _suffix(config))


def _ngram(config: DrafterConfig) -> Drafter:
    from actors.drafters.ngram import NgramDrafter

    return NgramDrafter(config)


def _suffix(config: DrafterConfig) -> Drafter:
    from actors.drafters.suffix import SuffixDrafter

    return SuffixDrafter(config)


def _draft_model(config: DrafterConfig) -> Drafter:
    from actors.drafters.external import ExternalDrafter

    return ExternalDrafter.load(config)


def _learned(module: str, name: str) -> Builder:
    """A drafter that reads the target's features, of the class `name` of a module here."""

    def build(config: DrafterConfig) -> Drafter:
        drafter: Drafter = getattr(importlib.import_module(f"actors.drafters.{module}"), name).load(
            config
        )
        return drafter

    return build


LEARNED: dict[str, Builder] = {
    "dflash": _learned("dflash", "DFlashDrafter"),
    "dspark": _learned("dspark", "DSparkDrafter"),
    "eagle3": _learned("eagle3", "EagleDrafter"),
    "mtp": _learned("mtp", "MtpDrafter"),
}
"""Those whose checkpoint says what a verifier has to tap."""


def _custom_class(config: DrafterConfig) -> Drafter:
    module, _, name = (config.model or "").partition(":")
    if not module or not name:
        raise DrafterLoadError(
            f"custom_class needs a model of the form module:Class, got {config.model!r}", "model"
        )
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DrafterLoadError(f"cannot import {config.model!r}: {error}", "model") from error
    try:
        drafter: Drafter = factory(**config.options)
    except Exception as error:
        raise DrafterLoadError(f"{config.model} failed to start: {error}", "options") from error
    missing = [
        m for m in ("info", "open", "observe", "propose", "close") if not hasattr(drafter, m)
    ]
    if missing:
        raise DrafterLoadError(f"{config.model} lacks {', '.join(missing)}", "model")
    return drafter


BUILDERS: dict[str, Builder] = {
    "ngram": _ngram,
    "suffix": _suffix,
    "draft_model": _draft_model,
    **LEARNED,
    "custom_class": _custom_class,
}

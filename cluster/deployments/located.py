"""An engine's options where it will run: names resolved to folders and devices of this node."""

from __future__ import annotations

from dataclasses import replace

from actors.drafters.config import DrafterConfig
from actors.engine.options import EngineOptions
from cluster.deployments.devices import resolve_device


def located(options: EngineOptions) -> EngineOptions:
    """Raises ModelStoreError when a model cannot be brought here, DrafterLoadError when the drafter
    is none for this target."""
    from cluster.models.paths import cache_root
    from cluster.models.resolve import resolve

    path = str(resolve(options.model_path, options.revision))
    tokenizer = str(resolve(options.tokenizer_path)) if options.tokenizer_path else path
    compile_cache = options.compile_cache or str(cache_root() / "compiled")
    speculative, taps = options.speculative, options.taps
    if speculative is not None:
        speculative = replace(
            speculative,
            device=resolve_device(speculative.device),
            model=drafter_model(speculative),
            target=path,
            target_revision=options.revision,
            target_tokenizer=tokenizer,
            compile_cache=compile_cache,
        )
        if options.placement == "remote":
            taps = _taps(speculative)
    return replace(
        options,
        model_path=path,
        tokenizer_path=tokenizer,
        device=resolve_device(options.device),
        compile_cache=compile_cache,
        speculative=speculative,
        taps=taps,
    )


def drafter_model(config: DrafterConfig) -> str | None:
    """The drafter's model on this node: a catalogue's name and a folder become absolute paths.
    Raises ModelStoreError."""
    from cluster.models.resolve import resolve

    if config.model is None or config.method == "custom_class":
        return config.model
    return str(resolve(config.model, config.revision))


def _taps(config: DrafterConfig) -> tuple[int, ...]:
    """What remote drafters will want of this verifier. Raises DrafterLoadError."""
    from actors.drafters.learned.load import feature_taps

    return feature_taps(config)

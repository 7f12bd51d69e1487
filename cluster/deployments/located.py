"""An engine's options where it will run: names resolved to folders and devices of this node."""

from __future__ import annotations

from dataclasses import replace

from actors.drafters.config import DrafterConfig
from actors.engine.options import EngineOptions, Mechanism
from cluster.deployments.devices import resolve_device


def located(options: EngineOptions) -> EngineOptions:
    """Raises ModelStoreError when a model cannot be brought here, DrafterLoadError when the drafter
    is none for this target."""
    from cluster.models.paths import cache_root
    from cluster.models.resolve import resolve

    path = str(resolve(options.model_path, options.revision))
    tokenizer = str(resolve(options.tokenizer_path)) if options.tokenizer_path else path
    compile_cache = options.compile_cache or str(cache_root() / "compiled")

    def at_home(mechanism: Mechanism) -> Mechanism:
        drafter = replace(
            mechanism.drafter,
            device=resolve_device(mechanism.drafter.device),
            model=drafter_model(mechanism.drafter),
            target=path,
            target_revision=options.revision,
            target_tokenizer=tokenizer,
            compile_cache=compile_cache,
        )
        taps = _taps(drafter) if mechanism.placement == "remote" else mechanism.taps
        return replace(mechanism, drafter=drafter, taps=taps)

    here = replace(
        options,
        model_path=path,
        tokenizer_path=tokenizer,
        device=resolve_device(options.device),
        compile_cache=compile_cache,
    )
    if not options.mechanisms:
        return here
    first, *others = (at_home(mechanism) for mechanism in options.mechanisms)
    return replace(here, speculative=first.drafter, taps=first.taps, beside=tuple(others))


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

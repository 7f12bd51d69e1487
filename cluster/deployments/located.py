"""An engine's options where it will run: names resolved to folders and devices of this node."""

from __future__ import annotations

from dataclasses import replace

from actors.engine.options import EngineOptions
from cluster.deployments.devices import resolve_device


def located(options: EngineOptions) -> EngineOptions:
    """Raises ModelStoreError when the model cannot be brought here."""
    from cluster.models.paths import cache_root
    from cluster.models.resolve import resolve

    path = str(resolve(options.model_path, options.revision))
    tokenizer = str(resolve(options.tokenizer_path)) if options.tokenizer_path else path
    speculative = options.speculative
    if speculative is not None:
        device = resolve_device(speculative.device)
        speculative = replace(speculative, device=device, target_tokenizer=tokenizer)
    return replace(
        options,
        model_path=path,
        tokenizer_path=tokenizer,
        device=resolve_device(options.device),
        compile_cache=options.compile_cache or str(cache_root() / "compiled"),
        speculative=speculative,
    )

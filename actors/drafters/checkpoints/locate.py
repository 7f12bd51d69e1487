"""Folders of this machine: what lies here, or is fetched from the Hugging Face hub by its id."""

from __future__ import annotations

from pathlib import Path

from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError, refusal
from actors.drafters.shipped import shipped

PATTERNS = ("*.json", "*.safetensors")
"""Pickles are not even fetched."""


def drafter_folder(config: DrafterConfig) -> Path:
    """Without a `model` the one that is shipped for the target, else a head inside the target
    (MTP). Raises DrafterLoadError."""
    if config.model:
        return folder_of(config.model, config.revision)
    target = target_folder(config)
    if found := shipped(config.method, target):
        return found
    if config.method == "mtp":
        return target
    raise refusal(
        f"{config.method} needs a model, the folder or Hugging Face id of a drafter: none is "
        "shipped for this target"
    )


def target_folder(config: DrafterConfig) -> Path:
    """Raises DrafterLoadError."""
    if not config.target:
        raise DrafterLoadError(
            f"{config.method} shares the target's embedding and head and was not told where the "
            "target is",
            "target",
        )
    return folder_of(config.target, config.target_revision)


def folder_of(name: str, revision: str | None) -> Path:
    """A folder as it is, or fetched to one. Raises DrafterLoadError."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.count("/") != 1 or name.startswith(("~", ".")):
        raise refusal(f"{name}: no such folder")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(PATTERNS)))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError) as error:
        first = (str(error).strip() or repr(error)).splitlines()[0]
        raise refusal(f"{name} is no folder here and cannot be fetched: {first}") from error

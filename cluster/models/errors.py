"""Typed errors of the model store.

ModelStoreError
├── UnknownModel       the name is neither in the catalogue, a folder, nor a Hugging Face id
├── FetchFailed        the package index or the download failed; what arrived is kept for later
├── DigestMismatch     the bytes are not the pinned ones
├── ConversionFailed   the checkpoint could not be converted
└── CacheUnusable      the cache folder cannot be written
"""

from __future__ import annotations


class ModelStoreError(Exception):
    """Base. The message is one line, ready for a terminal."""


class UnknownModel(ModelStoreError):
    def __init__(self, message: str, name: str, close: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.name = name
        self.close = close


class FetchFailed(ModelStoreError):
    pass


class DigestMismatch(ModelStoreError):
    pass


class ConversionFailed(ModelStoreError):
    pass


class CacheUnusable(ModelStoreError):
    pass

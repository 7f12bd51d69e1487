"""Where a policy actor's state outlives it, if it is given a place: one file, replaced whole.

Verifiers know most of it (their own tallies, the configuration of their snapshot), so without a
file only a restart of everything at once loses what was learnt. A file that cannot be read is put
aside and never stops a start; one that cannot be written is said and never stops serving.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from google.protobuf.message import DecodeError

from pilotfish.v1 import control_pb2 as pb

logger = logging.getLogger(__name__)


class StateFile:
    """One writer at a time. path: on a disk that every node with a policy actor sees."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def load(self) -> pb.PolicyState | None:
        """None where there is none that can be read."""
        try:
            return pb.PolicyState.FromString(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except DecodeError:
            aside = self.path.with_name(self.path.name + ".unreadable")
            os.replace(self.path, aside)
            logger.warning("%s holds no policy state; it is now %s", self.path, aside.name)
            return None
        except OSError as error:
            logger.warning("the policy's state cannot be read: %s", error)
            return None

    def save(self, state: pb.PolicyState) -> bool:
        """Whether it is written: whole, or not at all."""
        written = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(state.SerializeToString())
            os.replace(written, self.path)
        except OSError as error:
            logger.error("the policy's state cannot be kept: %s", error)
            written.unlink(missing_ok=True)
            return False
        return True

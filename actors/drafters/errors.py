"""Why a drafter cannot be built. What fails later, on a session, is a `DrafterError`."""

from __future__ import annotations


class DrafterLoadError(Exception):
    """A drafter's configuration or checkpoint is refused; `param` names the field."""

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.param = param


class DrafterStuck(DrafterLoadError):
    """It was built, and then did not come back from one of its first calls."""


def refusal(message: str) -> DrafterLoadError:
    """A checkpoint is refused: it is the configuration's `model` that is wrong."""
    return DrafterLoadError(message, "model")

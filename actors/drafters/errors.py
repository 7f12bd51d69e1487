"""Why a drafter cannot be built. What fails later, on a session, is a `DrafterError`."""

from __future__ import annotations


class DrafterLoadError(Exception):
    """A drafter's configuration or checkpoint is refused; `param` names the field."""

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.param = param

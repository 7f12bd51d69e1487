"""What training refuses."""

from __future__ import annotations


class TrainingError(Exception):
    """Nothing was lost; the message says what to change. param: the option it is about."""

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.param = param

"""What is raised for a message that cannot be taken."""

from __future__ import annotations


class WireError(ValueError):
    """`field` names the part that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def check(good: bool, field: str, problem: str) -> None:
    """Raises WireError unless `good`."""
    if not good:
        raise WireError(field, problem)

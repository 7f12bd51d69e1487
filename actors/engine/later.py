"""A mapping that is made when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from typing_extensions import override


class Later(Mapping[str, float]):
    """What blocks are worth is asked by ports that wait; what is drafted here never is waited for,
    and pricing rows takes time. make: called once, or never."""

    def __init__(self, make: Callable[[], Mapping[str, float]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, float]:
        return self._make()

    @override
    def __getitem__(self, key: str) -> float:
        return self._made[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    @override
    def __len__(self) -> int:
        return len(self._made)

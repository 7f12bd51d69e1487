"""Eager at once, native when ready: which executor computes, and how it changes over.

    building ──▶ native          the usual way: the library is compiled while the model loads
        └──────▶ eager           no compiler, an unknown architecture, a failed check; with a reason

The change happens on the engine's thread between two steps. What eager wrote into the cache is
used on: the same values but for rounding. Where bits must not change at all (`batch_invariant`)
nothing is served before the executor is native.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from actors.engine.errors import ModelLoadError
from actors.engine.native.build import find_compiler, load_in_background
from actors.engine.native.check import check
from actors.engine.native.family import config_obstacle, obstacle
from actors.engine.native.library import Library
from actors.engine.native.target import NativeTarget
from actors.engine.target import Target

if TYPE_CHECKING:
    from actors.engine.options import EngineOptions

logger = logging.getLogger(__name__)

State = Literal["eager", "building", "native"]
Replace = Callable[[Callable[[], None]], object]
"""Runs a function where nothing else computes, and returns when it has run."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is replaced: `install` puts the new target in the place of `eager`, where nothing else
    computes."""

    eager: Target
    max_model_len: int
    threads: int | None
    install: Callable[[NativeTarget], None]


class Switch:
    """One engine's way to the native executor. Construct it first: compiling starts then.

    Raises ModelLoadError where `batch_invariant` is asked for and cannot be had.
    """

    def __init__(self, options: EngineOptions, config: Any) -> None:
        self._invariant = options.batch_invariant
        self._started = time.monotonic()
        self._library: Future[Library] | None = None
        self.state: State = "building"
        self.reason = ""
        if reason := _obstacle(options, config):
            self._give_up(reason)
        else:
            self._library = load_in_background(options.compile_cache)

    @property
    def wanted(self) -> bool:
        """Whether the native executor is, or will be, what computes."""
        return self.state != "eager"

    def settle(self, change: Change, *, patient: bool = False) -> None:
        """Before anything is served: change over if the library is there, or must be; who is
        patient waits for it."""
        if self._library and (self._library.done() or self._invariant or patient):
            self._perform(change, lambda function: function())

    def follow(self, change: Change, replace: Replace) -> None:
        """While serving: change over as soon as the library is there."""
        if self.state != "building":
            return
        logger.info("serving with transformers' classes while the native executor is compiled")
        threading.Thread(
            target=self._perform, args=(change, replace), name="pilotfish-switch", daemon=True
        ).start()

    def _perform(self, change: Change, replace: Replace) -> None:
        assert self._library is not None
        try:
            compiled = self._library.result()
            if reason := obstacle(change.eager.model):
                raise ModelLoadError(reason, param="model")
            native = NativeTarget(change.eager, compiled, change.max_model_len, change.threads)

            def swap() -> None:
                check(native, change.eager)
                change.install(native)
                self.state = "native"

            replace(swap)
        except Exception as error:
            self._give_up(str(error))
        else:
            seconds = time.monotonic() - self._started
            logger.info("the native executor computes, %.1f s after the start", seconds)

    def _give_up(self, reason: str) -> None:
        self.state, self.reason = "eager", reason
        if self._invariant:
            raise ModelLoadError(
                f"batch_invariant needs the native executor: {reason}", param="batch_invariant"
            )
        logger.warning("transformers' own classes compute: %s", reason)


def _obstacle(options: EngineOptions, config: Any) -> str:
    """Why the native executor is not for this engine; empty when it is."""
    if options.enforce_eager:
        return "enforce_eager is set"
    if options.device != "cpu":
        return f"the device is {options.device}"
    if options.tensor_parallel_size > 1:
        return "the target is shared by tensor-parallel ranks"
    if options.dtype == "float64":
        return "the dtype is float64"
    return config_obstacle(config) or ("" if find_compiler() else "there is no C++ compiler")

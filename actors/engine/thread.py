"""The engine's thread: commands in, events out, nothing shared.

Everything that touches the engine runs on this thread, between two steps. gRPC threads talk to
it through a queue and read their events from an `Outbox` of their own, so serialisation never
stands in a round's way.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from typing_extensions import override

from actors.engine.core import Engine
from actors.engine.errors import EngineError
from actors.engine.events import TokenEvent
from actors.engine.load import load
from actors.engine.sequence import EngineRequest

T = TypeVar("T")


class Outbox:
    """Events of one consumer, a list a step. `close` ends the iteration from any thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[TokenEvent] | None] = queue.SimpleQueue()
        self.closed = False

    def put(self, events: list[TokenEvent]) -> None:
        self._queue.put(events)

    def close(self) -> None:
        self.closed = True
        self._queue.put(None)

    def take(self, timeout: float) -> list[TokenEvent] | None:
        """All events there are, waiting up to `timeout` seconds for the first; None at the end,
        an empty list when nothing came."""
        try:
            events = self._queue.get(timeout=timeout)
        except queue.Empty:
            return []
        if events is None:
            return None
        while True:
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                return events
            if more is None:
                self._queue.put(None)
                return events
            events = events + more


class EngineThread(threading.Thread):
    """Runs an `Engine`; see the module docstring."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="pilotfish-engine", daemon=True)
        self.engine = engine
        self.failure: BaseException | None = None
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._owners: dict[str, Outbox] = {}
        self._outboxes: set[Outbox] = set()  # of all consumers, those without requests too
        self._lock = threading.Lock()  # guards _outboxes and _ended
        self._ended = False
        self._stopping = False

    # -- any thread -------------------------------------------------------------------------

    def connect(self, outbox: Outbox) -> bool:
        """Make the outbox known, so that it ends with the engine; False when that has ended."""
        with self._lock:
            if not self._ended:
                self._outboxes.add(outbox)
            return not self._ended

    def add(self, request: EngineRequest, outbox: Outbox) -> None:
        """Queue a request; what happens to it arrives in `outbox`, a refusal included."""
        self._commands.put(lambda: self._add(request, outbox))

    def abort(self, request_id: str, outbox: Outbox) -> None:
        """Drop a request of `outbox`; idempotent, and no event follows."""
        self._commands.put(lambda: self._abort(request_id, outbox))

    def disown(self, outbox: Outbox) -> None:
        """Drop every request of `outbox`: its consumer is gone."""
        with self._lock:
            self._outboxes.discard(outbox)
        self._commands.put(lambda: self._disown(outbox))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the engine's thread between two steps; where that has ended the
        future raises EngineError."""
        future: Future[T] = Future()

        def command() -> None:
            try:
                if self._ended:
                    raise EngineError("the engine has ended")
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            ended = self._ended
            if not ended:
                self._commands.put(command)
        if ended:
            command()
        return future

    def stop(self, timeout: float = 10.0) -> None:
        """End after the step that runs; requests left are dropped."""

        def command() -> None:
            self._stopping = True

        self._commands.put(command)
        if self.is_alive():
            self.join(timeout)

    # -- the engine's thread ----------------------------------------------------------------

    @override
    def run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.failure = error
            raise
        finally:
            with self._lock:
                self._ended = True
                ending = {*self._owners.values(), *self._outboxes}
            for outbox in ending:
                outbox.close()
            self._drain()  # nobody waits for an answer that never comes
            self.engine.shutdown()

    def _loop(self) -> None:
        while not self._stopping:
            if not self.engine.has_work:
                self._commands.get()()
            self._drain()
            if self.engine.has_work:
                self._deliver(self.engine.step())

    def _drain(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _add(self, request: EngineRequest, outbox: Outbox) -> None:
        if outbox.closed:
            return
        try:
            events = self.engine.add(request)
        except EngineError as error:
            outbox.put([TokenEvent(request.request_id, finish="error", error=error)])
            return
        self._owners[request.request_id] = outbox
        if events:
            self._deliver(events)

    def _abort(self, request_id: str, outbox: Outbox) -> None:
        if self._owners.get(request_id) is outbox:
            del self._owners[request_id]
            self.engine.abort(request_id)

    def _disown(self, outbox: Outbox) -> None:
        for request_id in [r for r, owner in self._owners.items() if owner is outbox]:
            self._abort(request_id, outbox)

    def _deliver(self, events: list[TokenEvent]) -> None:
        """One list an outbox and step."""
        grouped: dict[int, tuple[Outbox, list[TokenEvent]]] = {}
        for event in events:
            outbox = self._owners.get(event.request_id)
            if outbox is None:
                continue
            grouped.setdefault(id(outbox), (outbox, []))[1].append(event)
            if event.finish:
                del self._owners[event.request_id]
        for outbox, mine in grouped.values():
            outbox.put(mine)

    def owned(self) -> int:
        """Requests with an owner; for tests of law L3 (call it through `call`)."""
        return len(self._owners)

    def snapshot(self) -> dict[str, Any]:
        """Figures of the engine, read on its thread."""
        engine, steering = self.engine, self.engine.steering
        return {
            "running": len(engine.scheduler.running),
            "waiting": len(engine.scheduler.waiting),
            "free_blocks": engine.allocator.free,
            "total_blocks": engine.allocator.num_blocks,
            "cached_blocks": engine.allocator.idle,
            **load(engine),
            **{name: getattr(engine.stats, name) for name in engine.stats.__slots__},
            **({} if steering is None else steering.figures.told(steering.policy.state)),
        }

"""Eager at once, native when ready, and a reason where it stays eager."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest
import torch

from actors.engine.errors import ModelLoadError
from actors.engine.native import switch as switching
from actors.engine.native.build import BuildError
from actors.engine.native.library import Library
from actors.engine.native.switch import Change, Switch
from actors.engine.native.target import NativeTarget
from actors.engine.options import EngineOptions
from actors.engine.service import EngineService
from actors.engine.target import Target
from tests.models import make_rand, save_tiny
from tests.native import compiled, make_model, needs_compiler

pytestmark = needs_compiler


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Future[Library]]:
    """A build that ends when the test says so."""
    future: Future[Library] = Future()
    monkeypatch.setattr(switching, "load_in_background", lambda folder: future)
    yield future
    if not future.done():
        future.set_exception(BuildError("the test is over"))


def options(**settings: Any) -> EngineOptions:
    return EngineOptions(**{"model_path": "", "verifier_id": "v", "dtype": "bfloat16", **settings})


class Place:
    """Where the engine keeps its target."""

    def __init__(self, kind: str = "llama") -> None:
        self.eager: Any = Target(make_model(kind, torch.bfloat16))
        self.target: Any = self.eager
        self.changed = Event()

    def change(self) -> Change:
        return Change(self.eager, 64, 1, self.install)

    def install(self, native: NativeTarget) -> None:
        self.target = native
        self.changed.set()


def test_a_library_that_is_there_computes_from_the_first_token(library: Future[Library]) -> None:
    place = Place()
    switch = Switch(options(), place.eager.model.config)
    assert (switch.state, switch.wanted) == ("building", True)
    library.set_result(compiled())
    switch.settle(place.change())
    assert switch.state == "native"
    assert isinstance(place.target, NativeTarget)


def test_who_is_patient_waits_for_the_build(library: Future[Library]) -> None:
    place = Place()
    switch = Switch(options(), place.eager.model.config)
    built = compiled()
    Timer(0.01, lambda: library.set_result(built)).start()
    switch.settle(place.change(), patient=True)
    assert switch.state == "native"
    assert isinstance(place.target, NativeTarget)


def test_the_engine_changes_over_when_the_build_ends(library: Future[Library]) -> None:
    place = Place()
    switch = Switch(options(), place.eager.model.config)
    switch.settle(place.change())
    assert place.target is place.eager
    switch.follow(place.change(), lambda swap: swap())
    library.set_result(compiled())
    assert place.changed.wait(10)
    assert isinstance(place.target, NativeTarget)


def test_a_failed_build_leaves_eager_with_the_reason(library: Future[Library]) -> None:
    place = Place()
    switch = Switch(options(), place.eager.model.config)
    library.set_exception(BuildError("the compiler is out of order"))
    switch.settle(place.change())
    assert (switch.state, switch.wanted) == ("eager", False)
    assert "out of order" in switch.reason
    assert place.target is place.eager


def test_a_failed_check_leaves_eager_with_the_reason(
    library: Future[Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(native: NativeTarget, eager: Target) -> None:
        raise ModelLoadError("it differs")

    monkeypatch.setattr(switching, "check", differs)
    place = Place()
    switch = Switch(options(), place.eager.model.config)
    library.set_result(compiled())
    switch.settle(place.change())
    assert (switch.state, switch.reason) == ("eager", "it differs")
    assert place.target is place.eager


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"enforce_eager": True}, "enforce_eager"),
        ({"device": "cuda"}, "cuda"),
        ({"dtype": "float64"}, "float64"),
        ({"tensor_parallel_size": 2}, "tensor-parallel"),
    ],
)
def test_what_stands_against_it_is_said_and_under_batch_invariant_refused(
    settings: dict[str, Any], word: str
) -> None:
    config = make_model("llama", torch.bfloat16).config
    switch = Switch(options(**settings), config)
    assert switch.state == "eager"
    assert word in switch.reason
    with pytest.raises(ModelLoadError, match=word) as error:
        Switch(options(batch_invariant=True, **settings), config)
    assert error.value.param == "batch_invariant"


def test_batch_invariant_serves_nothing_before_the_build_has_ended(
    library: Future[Library],
) -> None:
    place = Place()
    switch = Switch(options(batch_invariant=True), place.eager.model.config)
    library.set_exception(BuildError("the compiler is out of order"))
    with pytest.raises(ModelLoadError, match="out of order"):
        switch.settle(place.change())


def test_eager_weights_go_when_the_native_ones_have_come(tmp_path: Path) -> None:
    folder = save_tiny(make_rand(dtype=torch.float32), tmp_path)
    service = EngineService(
        EngineOptions(
            folder,
            "v",
            dtype="auto",
            batch_invariant=True,
            compile_cache=str(compiled().path.parent),
            kv_cache_memory_bytes=2**22,
            max_model_len=64,
        )
    )
    change = service._change
    assert change is not None
    eager = weakref.ref(change.eager.model)
    del change
    service.start("127.0.0.1")
    try:
        stats = service.stats()
        assert (stats["executor"], stats["executor_reason"]) == ("native", "")
        assert service.describe().dtype == "bfloat16"  # what "auto" means where it computes
        gc.collect()
        assert eager() is None
    finally:
        service.stop(0)

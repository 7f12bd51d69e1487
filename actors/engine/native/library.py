"""The border to the compiled executor: src/abi.h, field by field."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from actors.engine.errors import EngineError

ABI = 6
FAULTS = {
    1: "a position lies outside max_model_len",
    2: "a token id is outside the vocabulary",
    3: "there is no memory for so many rows",
}
_P, _I, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class Model(ctypes.Structure):
    """PilotfishModel."""

    _fields_ = (
        *((name, _I) for name in ("rounds", "hidden", "inter", "heads", "kv_heads", "head_dim")),
        *((name, _I) for name in ("vocab", "tokens", "layers", "max_positions")),
        *((name, _F) for name in ("epsilon", "scale")),
        *((name, _P) for name in ("cosines", "sines", "embedding", "norm", "head")),
    )


class Layer(ctypes.Structure):
    """PilotfishLayer."""

    _fields_ = (
        *((name, _P) for name in ("qkv", "qkv_bias", "out", "out_bias", "gate_up", "down")),
        *((name, _P) for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm")),
        ("window", _I),
    )


class Step(ctypes.Structure):
    """PilotfishStep."""

    _fields_ = (
        ("rows", _I),
        *((name, _P) for name in ("ids", "positions", "slots")),
        ("spans", _I),
        *((name, _P) for name in ("starts", "stops", "tables", "keys", "values")),
        ("kept", _I),
        *((name, _P) for name in ("keep", "logits")),
        ("taps", _I),
        *((name, _P) for name in ("tap", "features")),
    )


class Linear(ctypes.Structure):
    """PilotfishLinear."""

    _fields_ = (
        *((name, _I) for name in ("rounds", "inner", "outer")),
        *((name, _P) for name in ("packed", "bias")),
    )


class DraftLayer(ctypes.Structure):
    """PilotfishDraftLayer."""

    _fields_ = (
        *((name, _I) for name in ("rounds", "hidden", "inter", "heads", "kv_heads", "head_dim")),
        *((name, _I) for name in ("turned", "interleaved", "normed_residual")),
        *((name, _F) for name in ("epsilon", "scale")),
        *((name, _P) for name in ("qkv", "qkv_bias", "out", "gate_up", "down")),
        *((name, _P) for name in ("beside_norm", "input_norm", "mlp_norm")),
        *((name, _P) for name in ("query_norm", "key_norm")),
    )


class DraftStep(ctypes.Structure):
    """PilotfishDraftStep."""

    _fields_ = (
        ("rows", _I),
        *((name, _P) for name in ("x", "beside", "cosines", "sines")),
        *((name, _I) for name in ("causal", "window", "spans")),
        *((name, _P) for name in ("starts", "stops", "offsets", "capacities")),
        *((name, _P) for name in ("keys", "values", "out")),
    )


class Chain(ctypes.Structure):
    """PilotfishChain."""

    _fields_ = (
        ("count", _I),
        ("layers", ctypes.POINTER(DraftLayer)),
        ("recycles_normed", _I),
        ("norm", _P),
        ("epsilon", _F),
        ("head", ctypes.POINTER(Linear)),
        ("choices", _I),
        ("ids", _P),
        *((name, _I) for name in ("rounded", "tokens")),
        ("embedding", _P),
    )


class ChainStep(ctypes.Structure):
    """PilotfishChainStep."""

    _fields_ = (
        *((name, _I) for name in ("chains", "depth")),
        *((name, _P) for name in ("depths", "states", "cosines", "sines")),
        ("window", _I),
        *((name, _P) for name in ("offsets", "capacities", "keys", "values", "drafts", "tops")),
    )


class Library:
    """The functions of a compiled library. Calls release the interpreter lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dll = ctypes.CDLL(str(path))
        self._declare("pilotfish_abi", _I)
        found = int(self._dll.pilotfish_abi())
        if found != ABI:
            raise OSError(f"{path} speaks version {found} of the interface, {ABI} is expected")
        self._declare("pilotfish_create", _P, ctypes.POINTER(Model), ctypes.POINTER(Layer), _I)
        self._declare("pilotfish_destroy", None, _P)
        self._declare("pilotfish_forward", _I, _P, ctypes.POINTER(Step))
        self._declare("pilotfish_crew", _P, _I)
        self._declare("pilotfish_crew_end", None, _P)
        self._declare("pilotfish_linear", _I, _P, ctypes.POINTER(Linear), _I, _P, _I, _P)
        layer, step = ctypes.POINTER(DraftLayer), ctypes.POINTER(DraftStep)
        self._declare("pilotfish_layer", _I, _P, layer, step)
        chain, walk = ctypes.POINTER(Chain), ctypes.POINTER(ChainStep)
        self._declare("pilotfish_chain", _I, _P, chain, walk)
        self._declare("pilotfish_norm", None, _I, _I, _P, _P, _F, _P)

    def _declare(self, name: str, result: Any, *arguments: Any) -> None:
        function = getattr(self._dll, name)
        function.restype, function.argtypes = result, list(arguments)

    def create(self, model: Model, layers: Any, threads: int) -> int:
        """layers: a ctypes array of Layer. What they point at must outlive the executor. Raises
        EngineError where the machine has no memory or no threads for it."""
        executor = self._dll.pilotfish_create(model, layers, threads)
        if not executor:
            raise EngineError(f"there is no memory, or there are no {threads} threads to be had")
        return int(executor)

    def destroy(self, executor: int) -> None:
        self._dll.pilotfish_destroy(executor)

    def forward(self, executor: int, step: Step) -> None:
        """Raises EngineError, with nothing written, for what FAULTS names."""
        if fault := int(self._dll.pilotfish_forward(executor, step)):
            raise EngineError(FAULTS.get(fault, f"fault {fault} of the executor"))

    def crew(self, threads: int) -> int:
        """Threads for `linear` and `layer`. Raises EngineError where they cannot be had."""
        made = self._dll.pilotfish_crew(threads)
        if not made:
            raise EngineError(f"there is no memory, or there are no {threads} threads to be had")
        return int(made)

    def end_crew(self, crew: int) -> None:
        self._dll.pilotfish_crew_end(crew)

    def linear(self, crew: int, linear: Linear, rows: int, x: int, stride: int, out: int) -> None:
        """x, out: addresses of float32 [rows, stride] and [rows, outer padded to panels]."""
        if self._dll.pilotfish_linear(crew, linear, rows, x, stride, out):
            raise EngineError(FAULTS[3])

    def layer(self, crew: int, layer: DraftLayer, step: DraftStep) -> None:
        """Writes the step's `out`, and keys and values of its rows."""
        if self._dll.pilotfish_layer(crew, layer, step):
            raise EngineError(FAULTS[3])

    def chain(self, crew: int, chain: Chain, step: ChainStep) -> None:
        """Writes the step's `drafts` and `tops`, and keys and values of all drafts but the last."""
        if self._dll.pilotfish_chain(crew, chain, step):
            raise EngineError(FAULTS[3])

    def norm(self, rows: int, size: int, x: int, weight: int, epsilon: float, out: int) -> None:
        """RMS norm of float32 rows [rows, size], a multiple of eight."""
        self._dll.pilotfish_norm(rows, size, x, weight, epsilon, out)

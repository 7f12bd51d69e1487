"""Threads of the compiled library that small models share: for linear maps and single layers."""

from __future__ import annotations

import weakref

import torch

from actors.engine.native import library
from actors.engine.native.library import Library


class Crew:
    """threads: those that compute, the caller included. Callers take turns."""

    def __init__(self, compiled: Library, threads: int = 1) -> None:
        self._library = compiled
        self._handle = compiled.crew(threads)
        self._close = weakref.finalize(self, compiled.end_crew, self._handle)
        self._close.atexit = False  # the process's end frees it all

    def linear(self, linear: library.Linear, x: torch.Tensor, out: torch.Tensor) -> None:
        """x [rows, inner] and out [rows, outer padded], float32, contiguous."""
        self._library.linear(
            self._handle, linear, x.shape[0], x.data_ptr(), x.shape[1], out.data_ptr()
        )

    def layer(self, layer: library.DraftLayer, step: library.DraftStep) -> None:
        """What the step points at must live until this returns."""
        self._library.layer(self._handle, layer, step)

    def chain(self, chain: library.Chain, step: library.ChainStep) -> None:
        """What the step points at must live until this returns."""
        self._library.chain(self._handle, chain, step)

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, epsilon: float, out: torch.Tensor
    ) -> None:
        """x and out [rows, size], weight [size], float32, contiguous; size is a multiple of 8."""
        rows, size = x.shape
        self._library.norm(rows, size, x.data_ptr(), weight.data_ptr(), epsilon, out.data_ptr())

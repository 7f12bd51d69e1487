"""Pilotfish: speculative decoding for large language models on a Ray cluster."""

__version__ = "0.1.0"

"""Targets with recurrent layers: convolutions and gated delta nets beside attention.

`convolution` and `delta` are the mathematics, pure; `memory` keeps each running request's state and
rolls it back; `mixers` compute transformers' layers over packed rows with it.
"""

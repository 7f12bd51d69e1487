"""A native dense executor for the Llama and Qwen families on the CPU (infra/adr/0003).

Weights in panels, packed rows, a paged cache, one C++ call a step. A row's result depends on its
own tokens alone, bit for bit: not on the batch, the draft length, chunking or a prefix hit.
"""

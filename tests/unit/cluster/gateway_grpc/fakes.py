"""A scripted verifier behind the real wire, a router over it, a tiny tokenizer, a whole gateway.

The model of these tests: the token at output position i of a request with seed s is
(s + 7 * i) % 16, whichever verifier writes it, so every takeover has one right continuation.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import grpc
import grpc.aio
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from actors.sampling.params import SamplingParams
from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.grpc_server import GrpcSettings, RunningServer, start_grpc
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.types import Chunk, GenerateSpec
from cluster.gateway.verifier_link import LinkSettings, VerifierAddress
from cluster.gateway.verifiers import NoRoute, VerifierBackend
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc

VOCAB = 17
CONTEXT = 512
DIGEST = "digest"
_Queue: TypeAlias = "asyncio.Queue[pb.TokenFrame | Literal['die', 'end']]"


def token_at(seed: int, position: int) -> int:
    return (seed + 7 * position) % 16


def expected(seed: int, count: int) -> list[int]:
    return [token_at(seed, i) for i in range(count)]


def text_of(tokens: list[int]) -> str:
    return "".join(chr(97 + token) for token in tokens)


class CharTokenizer:
    """Token t < 16 is chr(97 + t); 16 is <eos>. The chat template joins the contents."""

    def __init__(self) -> None:
        vocab = {chr(97 + t): t for t in range(16)} | {"<eos>": 16}
        tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="a"))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer.decoder = decoders.Fuse()
        tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
        self.backend_tokenizer = tokenizer

    def apply_chat_template(
        self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        return "".join(message["content"] for message in conversation)


@dataclass
class Script:
    """How a fake verifier behaves; every field may change while it runs.

    die_after: output position at which the process dies, all its streams with it.
    hold_at: output position before which the request waits for `release`.
    refuse: answers every submit with this error. overrun: ignores max_tokens.
    """

    per_chunk: int = 2
    die_after: int | None = None
    hold_at: int | None = None
    release: asyncio.Event = field(default_factory=asyncio.Event)
    refuse: pb.EngineError | None = None
    silent: bool = False
    overrun: bool = False
    give_up: bool = False
    wrong_digest: bool = False
    abort_lag: asyncio.Event | None = None


class FakeVerifier(pb_grpc.VerificationServicer):
    """One verifier process on loopback."""

    def __init__(self, name: str, script: Script | None = None) -> None:
        self.name = name
        self.script = script or Script()
        self.submits: list[pb.Submit] = []
        self.aborts: list[str] = []
        self.frames: list[pb.GatewayFrame] = []
        self.streams = 0
        self.running: set[str] = set()
        self.changed = asyncio.Event()
        self.address = VerifierAddress(name, "")
        self._server: grpc.aio.Server | None = None
        self._queues: list[_Queue] = []

    async def start(self) -> VerifierAddress:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_VerificationServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.address = VerifierAddress(self.name, f"127.0.0.1:{port}")
        return self.address

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    def kill(self) -> None:
        """Every stream breaks, after what was sent before."""
        for queue in self._queues:
            queue.put_nowait("die")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def info(self) -> pb.VerifierInfo:
        return pb.VerifierInfo(
            verifier=self.name,
            pid=1,
            model="tiny",
            tokenizer="other" if self.script.wrong_digest else DIGEST,
            vocab_size=VOCAB,
            max_model_len=CONTEXT,
            dtype="float32",
            drafters=[pb.DrafterLink(drafter="d", mechanism="ngram", up=True)],
        )

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.VerifierInfo:
        return self.info()

    async def Serve(self, request_iterator: AsyncIterator[pb.GatewayFrame], context: Any) -> None:
        self.streams += 1
        first = await context.read()
        if first.hello.tokenizer != self.info().tokenizer:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "tokenizer: another vocabulary"
            )
        out: _Queue = asyncio.Queue()
        self._queues.append(out)  # before the welcome: whoever has read that may kill the stream
        await context.write(pb.TokenFrame(welcome=self.info()))
        tasks: dict[str, asyncio.Task[None]] = {}
        reader = asyncio.create_task(self._read(context, out, tasks))
        reader.add_done_callback(lambda _: out.put_nowait("end"))
        try:
            while not isinstance(frame := await out.get(), str):
                await context.write(frame)
            if frame == "die":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the process is gone")
        finally:
            self._queues.remove(out)
            for task in (reader, *tasks.values()):
                task.cancel()
            self.running.clear()
            self.changed.set()

    async def _read(self, context: Any, out: _Queue, tasks: dict[str, asyncio.Task[None]]) -> None:
        while (frame := await context.read()) is not grpc.aio.EOF:
            self.frames.append(frame)
            for submit in frame.submits:
                self.submits.append(submit)
                self.running.add(submit.request_id)
                tasks[submit.request_id] = asyncio.create_task(self._run(submit, out))
            for request_id in frame.aborts:
                self.aborts.append(request_id)
                self.running.discard(request_id)
                if request_id in tasks and self.script.abort_lag is None:
                    tasks[request_id].cancel()
            if frame.ping_ns and not self.script.silent:
                out.put_nowait(pb.TokenFrame(pong_ns=frame.ping_ns))
            self.changed.set()

    async def _run(self, submit: pb.Submit, out: _Queue) -> None:
        script = self.script
        chunk = pb.TokenChunk(request_id=submit.request_id, stop_token=-1)
        if script.refuse is not None:
            chunk.finish = pb.FINISH_ERROR
            chunk.error.CopyFrom(script.refuse)
            self._send(out, chunk)
            return
        if script.give_up:
            chunk.finish = pb.FINISH_ABORT
            self._send(out, chunk)
            return
        position = len(submit.output_ids)
        end = CONTEXT if script.overrun else submit.sampling.max_tokens
        while position < end:
            if script.die_after is not None and position >= script.die_after:
                self.kill()
                return
            if script.hold_at is not None and position >= script.hold_at:
                await script.release.wait()
            count = min(script.per_chunk, end - position)
            tokens = [token_at(submit.sampling.seed, position + i) for i in range(count)]
            position += count
            self._send(
                out,
                pb.TokenChunk(
                    request_id=submit.request_id,
                    tokens=tokens,
                    drafted=count,
                    accepted=count - 1,
                    mechanism="ngram",
                    remote=True,
                    finish=pb.FINISH_LENGTH if position == end else pb.FINISH_UNSPECIFIED,
                    stop_token=-1,
                ),
            )
            await asyncio.sleep(0)

    def _send(self, out: _Queue, chunk: pb.TokenChunk) -> None:
        if chunk.finish:
            self.running.discard(chunk.request_id)
        out.put_nowait(pb.TokenFrame(chunks=[chunk]))
        self.changed.set()


class FakeRouter:
    """Offers the first verifier that is not excluded, and counts the slots that are held."""

    def __init__(self, *addresses: VerifierAddress) -> None:
        self.addresses = list(addresses)
        self.held: Counter[str] = Counter()
        self.offered: list[str] = []

    @asynccontextmanager
    async def choose(
        self, request_id: str, exclude: frozenset[str]
    ) -> AsyncGenerator[VerifierAddress, None]:
        address = next((a for a in self.addresses if a.name not in exclude), None)
        if address is None:
            raise NoRoute("no verifier is left")
        self.offered.append(address.name)
        self.held[address.name] += 1
        try:
            yield address
        finally:
            self.held[address.name] -= 1


FAST = LinkSettings(connect_timeout_s=2.0, ping_interval_s=0.05, missed_pings=3)


def make_spec(
    request_id: str = "r", *, seed: int = 3, max_tokens: int = 12, prompt: tuple[int, ...] = (1, 2)
) -> GenerateSpec:
    sampling = SamplingParams(seed=seed, max_tokens=max_tokens)
    return GenerateSpec(request_id=request_id, prompt_ids=prompt, sampling=sampling)


@dataclass
class Stand:
    """Verifiers, the router over them, the backend."""

    verifiers: list[FakeVerifier]
    router: FakeRouter
    backend: VerifierBackend


@asynccontextmanager
async def make_stand(
    *scripts: Script, patience_s: float = 5.0, settings: LinkSettings = FAST
) -> AsyncGenerator[Stand, None]:
    """Verifiers v0, v1, … with these scripts."""
    verifiers = [FakeVerifier(f"v{i}", script) for i, script in enumerate(scripts)]
    router = FakeRouter(*[await verifier.start() for verifier in verifiers])
    backend = VerifierBackend(
        router,
        gateway="g",
        tokenizer_digest=DIGEST,
        takeover_timeout_s=patience_s,
        settings=settings,
    )
    try:
        yield Stand(verifiers, router, backend)
    finally:
        await backend.close()
        for verifier in verifiers:
            await verifier.stop()


@dataclass
class Gateway:
    """A whole gateway behind its public port."""

    stand: Stand
    service: GenerationService
    server: RunningServer

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def make_gateway(
    *scripts: Script,
    patience_s: float = 5.0,
    settings: GatewaySettings | None = None,
    grpc_settings: GrpcSettings | None = None,
    status: StatusSource | None = None,
) -> AsyncGenerator[Gateway, None]:
    async with make_stand(*scripts, patience_s=patience_s) as stand:
        service = GenerationService(
            stand.backend, CharTokenizer(), settings or GatewaySettings(served_model_name="tiny")
        )
        server = await start_grpc(service, grpc_settings or GrpcSettings(), status)
        try:
            yield Gateway(stand, service, server)
        finally:
            await server.stop(0.2)


async def collect(chunks: AsyncIterator[Chunk]) -> list[Chunk]:
    return [chunk async for chunk in chunks]


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]

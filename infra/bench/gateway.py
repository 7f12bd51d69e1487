"""What a streamed token costs in the gateway: CPU of its process alone, both doors.

    python infra/bench/gateway.py [--model smollm2] [--steps 400] [--step-ms 15]

A verifier that only pretends runs in a process of its own: each step it sends every running request
a chunk of three tokens, as a round with a draft of four does. The gateway is a whole one in another
process, with gRPC and, under uvicorn, HTTP; the clients run here. CPU is that of the gateway's
process, threads of gRPC included, less what it takes idle, over the chunks and tokens delivered.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import multiprocessing as mp
import os
import platform
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata
from multiprocessing.connection import Connection
from typing import Any

import grpc.aio
import httpx

from cluster.gateway.grpc_server import GrpcSettings, start_grpc
from cluster.gateway.http import create_app
from cluster.gateway.loading import load_tokenizer
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.verifier_link import VerifierAddress
from cluster.gateway.verifiers import VerifierBackend
from cluster.models.resolve import resolve
from pilotfish import AsyncClient
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc

TOKENS = 3
DRAFTED = 4
CONTEXT = 1 << 20


class PretendingVerifier(pb_grpc.VerificationServicer):
    """Steps by the clock; the text is one long English sentence of the model's own tokens."""

    def __init__(self, ids: list[int], step_s: float, vocab_size: int) -> None:
        self._ids = ids
        self._step_s = step_s
        self._vocab_size = vocab_size

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.VerifierInfo:
        return self._info()

    async def Serve(self, request_iterator: AsyncIterator[pb.GatewayFrame], context: Any) -> None:
        await context.read()
        await context.write(pb.TokenFrame(welcome=self._info()))
        running: dict[str, list[int]] = {}
        pongs: list[int] = []
        reader = asyncio.create_task(self._read(context, running, pongs))
        try:
            while not reader.done():
                await asyncio.sleep(self._step_s)
                frame = pb.TokenFrame(chunks=[self._chunk(*item) for item in running.items()])
                for chunk in frame.chunks:
                    if chunk.finish:
                        del running[chunk.request_id]
                if pongs:
                    frame.pong_ns = pongs.pop()
                if frame.chunks or frame.pong_ns:
                    await context.write(frame)
        finally:
            reader.cancel()

    async def _read(self, context: Any, running: dict[str, list[int]], pongs: list[int]) -> None:
        while (frame := await context.read()) is not grpc.aio.EOF:
            for submit in frame.submits:
                running[submit.request_id] = [0, submit.sampling.max_tokens]
            for request_id in frame.aborts:
                running.pop(request_id, None)
            if frame.ping_ns:
                pongs.append(frame.ping_ns)

    def _chunk(self, request_id: str, state: list[int]) -> pb.TokenChunk:
        at, end = state
        count = min(TOKENS, end - at)
        state[0] += count
        return pb.TokenChunk(
            request_id=request_id,
            tokens=[self._ids[i % len(self._ids)] for i in range(at, at + count)],
            drafted=DRAFTED,
            accepted=count - 1,
            mechanism="suffix",
            remote=True,
            finish=pb.FINISH_LENGTH if state[0] == end else pb.FINISH_UNSPECIFIED,
            stop_token=-1,
        )

    def _info(self) -> pb.VerifierInfo:
        return pb.VerifierInfo(
            verifier="v",
            pid=os.getpid(),
            model="m",
            vocab_size=self._vocab_size,
            max_model_len=CONTEXT,
            dtype="float32",
        )


class OneRouter:
    def __init__(self, address: str) -> None:
        self._address = VerifierAddress("v", address)

    @asynccontextmanager
    async def choose(
        self, request_id: str, exclude: frozenset[str]
    ) -> AsyncIterator[VerifierAddress]:
        yield self._address


def run_verifier(pipe: Connection, ids: list[int], step_s: float, vocab_size: int) -> None:
    async def serve() -> None:
        server = grpc.aio.server()
        verifier = PretendingVerifier(ids, step_s, vocab_size)
        pb_grpc.add_VerificationServicer_to_server(verifier, server)
        pipe.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await server.stop(None)

    asyncio.run(serve())


def run_gateway(pipe: Connection, model: str, verifier: str) -> None:
    async def serve() -> None:
        import uvicorn

        tokenizer = load_tokenizer(model)
        backend = VerifierBackend(OneRouter(verifier), gateway="g", tokenizer_digest="")
        settings = GatewaySettings(served_model_name="m", num_speculative_tokens=DRAFTED)
        service = GenerationService(backend, tokenizer, settings)
        door = await start_grpc(service, GrpcSettings())
        app = create_app(backend, tokenizer, settings, service=service)
        http = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        task = asyncio.create_task(http.serve())
        while not http.started:
            await asyncio.sleep(0.01)
        pipe.send((door.port, http.servers[0].sockets[0].getsockname()[1]))
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, pipe.recv):
            pipe.send(time.process_time())
        http.should_exit = True
        await task
        await door.stop(0.1)
        await backend.close()

    asyncio.run(serve())


async def over_grpc(target: str, tokens: int) -> int:
    chunks = 0
    async with (
        AsyncClient(target) as client,
        client.stream("Once", max_tokens=tokens, temperature=0) as stream,
    ):
        async for _ in stream:
            chunks += 1
    return chunks


async def over_http(url: str, tokens: int) -> int:
    body = {"prompt": "Once", "max_tokens": tokens, "temperature": 0, "stream": True}
    chunks = 0
    async with (
        httpx.AsyncClient(timeout=None) as client,
        client.stream("POST", f"{url}/v1/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            chunks += line.startswith("data: {")
    return chunks


async def leg(
    cpu: Callable[[], float], stream: Callable[[], Any], clients: int, idle: float
) -> tuple[float, int]:
    """(CPU microseconds a chunk less the idle share, chunks)."""
    began_cpu, began = cpu(), time.perf_counter()
    chunks = sum(await asyncio.gather(*(stream() for _ in range(clients))))
    used = cpu() - began_cpu - idle * (time.perf_counter() - began)
    return 1e6 * used / chunks, chunks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-ms", type=float, default=15.0)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    folder = str(resolve(args.model))
    tokenizer = load_tokenizer(folder).backend_tokenizer
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    context = mp.get_context("spawn")
    verifier, theirs = context.Pipe()
    size = tokenizer.get_vocab_size()
    context.Process(
        target=run_verifier, args=(theirs, ids, args.step_ms / 1000, size), daemon=True
    ).start()
    address = f"127.0.0.1:{verifier.recv()}"
    gateway, theirs = context.Pipe()
    context.Process(target=run_gateway, args=(theirs, folder, address), daemon=True).start()
    grpc_port, http_port = gateway.recv()

    def cpu() -> float:
        gateway.send(True)
        seconds: float = gateway.recv()
        return seconds

    target, url, tokens = f"127.0.0.1:{grpc_port}", f"http://127.0.0.1:{http_port}", 3 * args.steps
    asyncio.run(over_grpc(target, 60))
    asyncio.run(over_http(url, 60))
    began, before = time.perf_counter(), cpu()
    time.sleep(5.0)
    idle = (cpu() - before) / (time.perf_counter() - began)
    version = metadata.version("grpcio")
    print(
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, Python "
        f"{platform.python_version()}, grpcio {version}, load {os.getloadavg()[0]:.1f}; "
        f"idle {100 * idle:.1f}% of a core"
    )
    print("| door | clients | CPU us a chunk | CPU us a token |\n| --- | ---: | ---: | ---: |")
    for name, stream in (
        ("gRPC", lambda: over_grpc(target, tokens)),
        ("HTTP", lambda: over_http(url, tokens)),
    ):
        for clients in (1, 8):
            runs = [asyncio.run(leg(cpu, stream, clients, idle)) for _ in range(args.repeat)]
            cost = statistics.median(us for us, _ in runs)
            print(f"| {name} | {clients} | {cost:.0f} | {cost / TOKENS:.0f} |")
    gateway.send(False)
    verifier.send(False)


TEXT = (
    "The pilot fish swims just ahead of the shark; naïve sailors thought that it led the way, "
    "but it only keeps to where the food is. What swims behind decides where both of them go. "
)

if __name__ == "__main__":
    main()

"""R08: gRPC and fork do not mix; processes are spawned."""

from __future__ import annotations

import ast
import multiprocessing
import subprocess
import sys
from pathlib import Path

import grpc

from actors.exchange.gathering import Patience
from actors.exchange.pool import PortOptions
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.actors.exchange.helpers import (
    ToyDrafter,
    ported,
    serving,
)

NO_WAIT = PortOptions(patience=Patience(fixed_wait_s=0.0))


def _one_rpc(address: str) -> None:
    from pilotfish.v1 import exchange_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        stub = exchange_pb2_grpc.DraftingStub(channel)
        assert stub.Describe(pb.DescribeRequest(), timeout=20).mechanism == "toy"


def test_a_spawned_child_speaks_grpc_while_the_parents_is_live() -> None:
    """R08."""
    with serving(ToyDrafter()) as endpoint, ported(endpoint):
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=_one_rpc, args=(endpoint.address,))
        child.start()
        child.join(60)
        assert child.exitcode == 0


LEAVES_WITHOUT_STOPPING = """
from tests.unit.actors.exchange.helpers import *
server = DraftingServer(ToyDrafter(taps=(1,)), name="d0")
port = RemotePort("v0", compat=tapped((1,)))
port.set_endpoints([Endpoint("d0", f"127.0.0.1:{server.start()}")])
wait_for(lambda: port.status()[0].up and server.stats().frames_received >= 2)
"""


def test_a_process_with_open_streams_ends_when_its_main_thread_does() -> None:
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", LEAVES_WITHOUT_STOPPING]
    assert subprocess.run(command, cwd=root, timeout=60, check=False).returncode == 0


def test_no_process_of_ours_is_made_by_fork() -> None:
    """R08's guard: multiprocessing is used through a spawn context only, and os.fork never."""
    root = Path(__file__).parents[4]
    calls: list[str] = []
    for package in ("actors", "cluster", "pilotfish", "policies"):
        for file in (root / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in ("fork", "forkpty"):
                    calls.append(f"{file.name}:{node.lineno} {node.attr}")
                if isinstance(node, ast.Call) and _is_forking(node):
                    calls.append(f"{file.name}:{node.lineno} {ast.unparse(node)}")
    assert calls == []


def _is_forking(node: ast.Call) -> bool:
    name = ast.unparse(node.func)
    if name.endswith(("get_context", "set_start_method")):
        return [ast.unparse(a) for a in node.args] != ["'spawn'"]
    return name in ("multiprocessing.Process", "mp.Process", "multiprocessing.Pool", "mp.Pool")

"""vllm:kv_cache_usage_perc and vllm:num_preemptions, from engines to /metrics."""

from __future__ import annotations

from actors.engine.thread import EngineThread
from actors.sampling.params import SamplingParams
from cluster.deployments.reports import verifier_status
from cluster.gateway.cells import Cells
from cluster.gateway.engine_figures import EngineFigures
from cluster.gateway.http import create_app
from cluster.gateway.settings import GatewaySettings
from pilotfish.v1 import control_pb2 as pb
from tests.law.harness import make_engine, request
from tests.models import make_rand
from tests.unit.cluster.gateway.builders import (
    FakeChatTokenizer,
    ScriptedBackend,
    make_char_tokenizer,
    make_client,
)


def report(name: str, preemptions: int, free: int = 5, total: int = 10, pid: int = 1) -> pb.Status:
    engine = pb.EngineTotals(preemptions=preemptions)
    verifier = pb.VerifierStatus(
        verifier=name, pid=pid, free_blocks=free, total_blocks=total, engine=engine
    )
    return pb.Status(verifiers=[verifier])


def both(*statuses: pb.Status) -> pb.Status:
    return pb.Status(verifiers=[v for status in statuses for v in status.verifiers])


class Shown:
    def __init__(self) -> None:
        self._cells = Cells({"model_name": "m"})
        self.figures = EngineFigures(self._cells)

    def after(self, status: pb.Status) -> tuple[float, float]:
        """(usage, preemptions)"""
        self.figures.update(status)
        families = {f.name: f.samples[0].value for f in self._cells.collect() if f.samples}
        return families["vllm:kv_cache_usage_perc"], families["vllm:num_preemptions"]


def test_the_figures_of_a_run_counted_by_hand() -> None:
    """Five blocks of eight tokens. Two prompts of nine take two each; at seventeen tokens both need
    a third, one is left, and the younger request gives way until the older one has ended."""
    engine = make_engine(make_rand(), blocks=5, block_size=8, max_model_len=40, prefix=False)
    sampling = SamplingParams(temperature=0.0, max_tokens=14)
    for name in ("older", "younger"):
        engine.add(request(name, list(range(9)), sampling))
    shown, seen = Shown(), []
    while engine.has_work:
        engine.step()
        status = verifier_status("v", EngineThread(engine).snapshot())
        seen.append(shown.after(pb.Status(verifiers=[status])))
    assert seen[0] == (0.8, 0.0)
    assert [usage for usage, _ in seen if usage > 0.8] == []
    assert 0.6 in [usage for usage, count in seen if count == 1.0]
    assert seen[-1] == (0.0, 1.0)


def test_usage_is_of_all_blocks_of_the_pool() -> None:
    status = both(report("a", 0, free=0, total=10), report("b", 0, free=30, total=30))
    assert Shown().after(status) == (0.25, 0.0)
    assert Shown().after(pb.Status()) == (0.0, 0.0)


def test_preemptions_of_an_engine_that_is_gone_stay_counted() -> None:
    shown = Shown()
    assert shown.after(both(report("a", 3), report("b", 1)))[1] == 4
    assert shown.after(report("b", 2))[1] == 5
    assert shown.after(both(report("a", 2, pid=2), report("b", 2)))[1] == 7
    assert shown.after(both(report("a", 3), report("b", 2)))[1] == 7  # it was only slow to answer


async def test_metrics_ask_the_engines_and_keep_their_last_word() -> None:
    answers = [report("a", 2, free=4), RuntimeError("no verifier")]

    async def status() -> pb.Status:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    chat = FakeChatTokenizer(make_char_tokenizer())
    app = create_app(ScriptedBackend(), chat, GatewaySettings(), status=status)
    async with make_client(app) as client:
        for _ in range(2):
            text = (await client.get("/metrics")).text
            labels = '{engine="0",model_name="default"}'
            assert f"vllm:kv_cache_usage_perc{labels} 0.6" in text
            assert f"vllm:num_preemptions_total{labels} 2.0" in text
    assert answers == []

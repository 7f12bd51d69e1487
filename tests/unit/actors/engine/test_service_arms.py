"""A whole engine with a mechanism in its process and another on the network."""

from __future__ import annotations

import pytest

from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter
from actors.engine.options import EngineOptions, Mechanism
from actors.engine.service import EngineService
from actors.exchange.compat import Compat, rule_name
from actors.exchange.server import DraftingServer
from actors.sampling.rules import DEFAULT
from pilotfish.v1 import control_pb2 as control
from tests.law.harness import plain, request, run
from tests.models import make_succ, save_tiny
from tests.unit.actors.exchange.helpers import wait_for

PROMPT = [3, 4, 5, 6, 3, 4, 5]
NGRAM = DrafterConfig("ngram", num_speculative_tokens=4)


def snapshot(version: int, *drafters: control.DrafterEndpoint) -> bytes:
    plan = control.CohortPlan(depth=4)
    return control.PolicySnapshot(
        term=1, version=version, drafters=drafters, fallback=plan
    ).SerializeToString()


def test_drafters_of_one_mechanism_come_and_go_beside_the_others(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = make_succ()
    service = EngineService(
        EngineOptions(
            model_path=save_tiny(model, tmp_path_factory.mktemp("succ")),
            verifier_id="v",
            dtype="float64",
            max_model_len=128,
            enforce_eager=True,
            depth=4,
            placement="colocated",
            speculative=DrafterConfig("suffix", num_speculative_tokens=8),
            beside=(Mechanism(NGRAM),),
        )
    )
    server = DraftingServer(build_drafter(NGRAM), name="d0", compat=Compat(rule=rule_name(DEFAULT)))
    address = f"127.0.0.1:{server.start('127.0.0.1')}"
    endpoint = control.DrafterEndpoint(drafter="d0", address=address, mechanism="ngram")
    service.start("127.0.0.1")
    try:
        assert [arm.mechanism for arm in service.port.arms] == ["suffix"]
        service.set_snapshot(snapshot(1, endpoint))
        wait_for(lambda: [arm.mechanism for arm in service.port.arms] == ["suffix", "ngram"])
        engine = service.thread.engine
        texts = service.thread.call(lambda: run(engine, request("r", PROMPT))).result(60)
        assert texts["r"] == plain(model, PROMPT)
        assert engine.stats.drafted > 0
        assert [link["drafter"] for link in service.stats()["links"]] == ["local-suffix", "d0"]
        service.set_snapshot(snapshot(2))
        assert [arm.mechanism for arm in service.port.arms] == ["suffix"]
    finally:
        service.stop(0.0)
        service.port.shutdown()
        server.stop(0.0)

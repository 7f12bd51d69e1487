"""Where an engine's drafts come from, by its options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actors.contracts import DraftPort
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.engine.noport import NoDrafts
from actors.engine.options import EngineOptions, Mechanism
from actors.engine.ports import drafter_bytes_a_row, make_port, take_endpoints
from actors.exchange.arms import ArmsPort
from actors.exchange.local import LocalPort
from actors.exchange.pool import RemotePort
from pilotfish.v1 import control_pb2 as control
from policies.choice import Arm
from tests.drafters.oracle import OracleDrafter

SUFFIX = DrafterConfig("suffix", num_speculative_tokens=6)
NGRAM = DrafterConfig("ngram", num_speculative_tokens=3)
OWN = DrafterConfig("custom_class", model="tests.unit.actors.engine.test_ports:Own")
HERE = EngineOptions("m", "v", speculative=SUFFIX, placement="colocated")


class Own(OracleDrafter):
    """Calls itself what it likes."""

    def __init__(self) -> None:
        super().__init__(lambda prefix, params: 0, 128)


def made(options: EngineOptions) -> DraftPort:
    return make_port(options, {}, vocab_size=128, tokenizer="", max_model_len=64)


def test_one_mechanism_is_a_port_of_its_own() -> None:
    assert isinstance(made(HERE), LocalPort)
    assert isinstance(made(replace(HERE, speculative=None)), NoDrafts)
    remote = made(replace(HERE, placement="remote"))
    assert isinstance(remote, RemotePort)
    remote.shutdown()


def test_several_mechanisms_are_arms_of_one_port_the_default_first() -> None:
    port = made(replace(HERE, beside=(Mechanism(NGRAM, "colocated"), Mechanism(NGRAM))))
    assert isinstance(port, ArmsPort)
    assert port.arms == (Arm("suffix", False, 6), Arm("ngram", False, 3))
    assert [part.name for part in port.parts] == [
        "suffix@colocated",
        "ngram@colocated",
        "ngram@remote",
    ]
    assert [record.drafter for record in port.status()] == ["local-suffix", "local-ngram"]
    port.shutdown()


def test_a_custom_class_is_known_by_what_it_calls_itself() -> None:
    port = made(replace(HERE, beside=(Mechanism(OWN, "colocated"),)))
    assert [arm.mechanism for arm in port.arms] == ["suffix", Own().info.mechanism]


def test_two_drafters_here_of_one_name_are_refused() -> None:
    with pytest.raises(DrafterLoadError, match=r"suffix@colocated.*suffix@colocated") as caught:
        made(replace(HERE, beside=(Mechanism(SUFFIX, "colocated"),)))
    assert caught.value.param == "method"


def test_each_arm_elsewhere_asks_the_drafters_of_its_mechanism(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[list[str]] = []

    def remember(self: RemotePort, endpoints: Any) -> None:
        given.append([endpoint.name for endpoint in endpoints])

    monkeypatch.setattr(RemotePort, "set_endpoints", remember)
    beside = (Mechanism(replace(SUFFIX, method="eagle3", enable_suffix_decoding=True)),)
    port = made(replace(HERE, placement="remote", beside=(*beside, Mechanism(OWN))))
    drafters = [
        control.DrafterEndpoint(drafter=name, address="h:1", mechanism=mechanism)
        for name, mechanism in (("a", "suffix"), ("b", "eagle3+suffix"), ("c", "oracle"))
    ]
    take_endpoints(port, drafters)
    assert given == [["a"], ["b"], ["c"]]
    take_endpoints(NoDrafts(), drafters)
    port.shutdown()


def test_drafters_here_take_room_together() -> None:
    port = made(replace(HERE, beside=(Mechanism(NGRAM, "colocated"),)))
    assert isinstance(port, ArmsPort)
    for part in port.parts:
        assert isinstance(part.port, LocalPort)
        part.port._info = replace(part.port._info, token_bytes=7)
    both = replace(HERE, beside=(Mechanism(NGRAM, "colocated"),))
    assert drafter_bytes_a_row(port, both) == 14
    elsewhere = replace(both, beside=(Mechanism(replace(NGRAM, device="cuda:1"), "colocated"),))
    assert drafter_bytes_a_row(port, elsewhere) == 7

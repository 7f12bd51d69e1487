"""`rejection` and `block` with a draft model, co-located and over the wire."""

from __future__ import annotations

import copy
import math

import pytest

from actors.drafters.config import DrafterConfig
from actors.drafters.external import ExternalDrafter
from actors.exchange.compat import Compat, rule_name
from actors.exchange.gathering import Patience
from actors.exchange.link import Endpoint
from actors.exchange.pool import PortOptions, RemotePort
from actors.exchange.server import DraftingServer
from actors.sampling.params import SamplingParams
from actors.sampling.rules import Rule
from tests.law.harness import assert_pools_full, make_engine, request, run
from tests.models import make_rand
from tests.unit.actors.exchange.helpers import wait_for

TARGET, OTHER = make_rand(seed=0), make_rand(seed=1)
PROMPTS = [[9, 2, 6], [5, 3, 5, 8], [2, 7, 1, 8, 2]]
RULES: tuple[Rule, ...] = ("rejection", "block")
REQUESTS = [
    request(str(i), prompt, SamplingParams(temperature=0.7, seed=i, max_tokens=20))
    for i, prompt in enumerate(PROMPTS)
]


def make_drafter(model: object, rule: Rule) -> ExternalDrafter:
    config = DrafterConfig("draft_model", rejection_sample_method=rule)
    return ExternalDrafter(copy.deepcopy(model), config)


@pytest.mark.parametrize("rule", RULES)
def test_a_draft_model_of_the_targets_own_weights_has_every_draft_accepted(rule: Rule) -> None:
    """I2 through the whole engine, sampled: rounds are exactly ceil((n - 1) / (D + 1))."""
    engine = make_engine(TARGET, make_drafter(TARGET, rule), 4, rule=rule)
    run(engine, *REQUESTS)
    assert engine.stats.accepted == engine.stats.drafted > 0
    assert engine.stats.rounds == 3 * math.ceil(19 / 5)


@pytest.mark.parametrize("rule", RULES)
def test_a_seed_gives_one_text_co_located_and_over_the_wire(rule: Rule) -> None:
    """With the same drafter and lengths; a drafter that knows nothing of the target, so that
    residuals are drawn from all the time. Its laws arrive bit for bit, or texts would differ."""
    local = make_engine(TARGET, make_drafter(OTHER, rule), 4, rule=rule)
    expected = run(local, *REQUESTS)
    compat = Compat(rule=rule_name(rule))
    server = DraftingServer(make_drafter(OTHER, rule), name="d", compat=compat)
    options = PortOptions(patience=Patience(fixed_wait_s=5.0), tails=False)
    port = RemotePort("v", compat=compat, vocab_size=128, options=options)
    port.set_endpoints([Endpoint("d", f"127.0.0.1:{server.start()}")])
    engine = make_engine(TARGET, port=port, depth=4, rule=rule)
    try:
        wait_for(lambda: all(link.up for link in port.status()))
        assert run(engine, *REQUESTS) == expected
        assert engine.stats.drafted == local.stats.drafted > 0
        assert engine.stats.accepted == local.stats.accepted
        assert not port.status()[0].faults
        assert_pools_full(engine)
    finally:
        engine.shutdown()
        server.stop(0.0)

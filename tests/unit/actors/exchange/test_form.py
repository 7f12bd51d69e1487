"""Features in the form their drafter wants: projected and packed on the sending side."""

from __future__ import annotations

import pytest
import torch

from actors.exchange import fp8
from actors.exchange.compat import Compat
from actors.exchange.form import CHUNK_ROWS, FeatureForm, Projection
from actors.exchange.pool import PortOptions, RemotePort
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    assert_text_is_the_targets,
    ported,
    serving,
    step_until,
    wait_for,
)

COLUMNS, WIDTH = 384, 128
PROJECTION = Projection(lambda rows: rows.float().view(-1, 3, WIDTH).sum(1), WIDTH, "fc-1")
"""Linear, and with the same bits however many rows go through it at once."""
FORMS = {
    "raw": FeatureForm(),
    "raw in fp8": FeatureForm(dtype="fp8"),
    "projected": FeatureForm(PROJECTION),
    "projected in fp8": FeatureForm(PROJECTION, "fp8"),
}


TAPPED = Compat(taps=(1, 2, 3))


@pytest.mark.parametrize("name", FORMS)
def test_a_drafter_gets_every_row_in_its_form(name: str) -> None:
    """Also a prompt that is longer than a chunk, whose rows go over the second lane."""
    form = FORMS[name]
    drafter = ToyDrafter(taps=(1, 2, 3), projection=form.digest)
    long = [i % 97 for i in range(2 * CHUNK_ROWS + 5)]
    rows = torch.randn(len(long) + 400, COLUMNS).bfloat16()
    view = View("r0", list(long), rows=rows)
    with (
        serving(drafter) as endpoint,
        ported(endpoint, compat=TAPPED, form=form) as port,
    ):
        engine = Engine(port)
        engine.start(view)
        step_until(engine, lambda: engine.drafted >= 16)
        assert engine.accepted == engine.drafted
        assert_text_is_the_targets(engine)
        (key,) = drafter.log
        got = torch.cat(drafter.log[key])
        sent = form(rows[: got.shape[0]])
        expected = fp8.unpack(sent) if form.dtype == "fp8" else sent
        assert torch.equal(got, expected)
        assert got.shape[1] == (COLUMNS if form.projection is None else WIDTH)


def test_a_drafter_that_expects_another_map_is_refused_by_name() -> None:
    drafter = ToyDrafter(taps=(1, 2, 3), projection="fc-2")
    form = FORMS["projected"]
    with (
        serving(drafter) as endpoint,
        ported(endpoint, compat=TAPPED, form=form, wait=False) as port,
    ):
        wait_for(lambda: "projection" in port.status()[0].detail)
        assert not port.status()[0].up


def test_a_port_without_a_form_sends_what_was_tapped() -> None:
    port = RemotePort("v", compat=Compat(), options=PortOptions())
    try:
        assert port._form.plain
    finally:
        port.shutdown()

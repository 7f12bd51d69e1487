"""What a person should know about a drafter and its target before acceptance tells."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.fit import rope_note
from actors.drafters.checkpoints.head import TargetShape
from actors.drafters.checkpoints.inspect import inspect
from actors.drafters.checkpoints.table import read_head
from actors.drafters.config import DrafterConfig
from actors.drafters.learned.load import find
from tests.checkpoints import block, eagle, mtp
from tests.checkpoints.block import HIDDEN, TARGET_LAYERS, VOCAB
from tests.checkpoints.target import target_folder

TARGET = TargetShape(HIDDEN, TARGET_LAYERS, VOCAB)
SAME = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
OTHER = {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}


@pytest.mark.parametrize("write", [block.zlab, eagle.speculators, mtp.FORMATS["MTP DeepSeek"]])
def test_a_rope_that_is_not_the_targets_is_said(write, tmp_path: Path) -> None:
    """S37, for every kind of drafter; the old spelling of the same rule is no other rule."""
    write(tmp_path)
    head = read_head(open_checkpoint(tmp_path), TARGET)
    assert rope_note(head, SAME) == ""
    assert rope_note(head, {"rope_theta": 10000.0}) == ""
    assert "'factor': 4.0" in rope_note(head, OTHER)


def test_loading_and_inspecting_say_it_and_refuse_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, scaled = tmp_path / "plain", tmp_path / "scaled"
    block.zlab(plain)
    block.zlab_scaled_rope(scaled)
    target = target_folder()
    with caplog.at_level(logging.WARNING):
        find(DrafterConfig("dflash", str(plain), target=str(target)), "dflash")
        assert "positions" not in caplog.text
        find(DrafterConfig("dflash", str(scaled), target=str(target)), "dflash")
    assert "positions" in caplog.text
    assert not any("positions" in note for note in inspect(plain, target)["notes"])
    said = inspect(scaled, target)
    assert said["fits"]
    assert any("positions" in note for note in said["notes"])

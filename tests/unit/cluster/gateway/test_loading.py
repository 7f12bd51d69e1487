"""A generic tokenizer is loaded without torch and is the one AutoTokenizer would give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from transformers import AutoTokenizer

from cluster.gateway.loading import load_tokenizer
from tests.models import make_tokenizer


def test_a_generic_tokenizer_is_the_one_auto_tokenizer_gives(tmp_path: Path) -> None:
    make_tokenizer(40, eos=3).save_pretrained(tmp_path)
    ours, theirs = load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.eos_token_id == theirs.eos_token_id == 3
    assert ours("hello").input_ids == theirs("hello").input_ids
    assert ours.chat_template == theirs.chat_template


def test_a_generic_tokenizer_brings_no_torch(tmp_path: Path) -> None:
    make_tokenizer(40).save_pretrained(tmp_path)
    code = (
        "import sys; from cluster.gateway.loading import load_tokenizer; "
        "load_tokenizer(sys.argv[1]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 0


def test_any_other_tokenizer_is_left_to_auto_tokenizer(tmp_path: Path) -> None:
    make_tokenizer(40).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert load_tokenizer(str(tmp_path)).get_vocab() == make_tokenizer(40).get_vocab()

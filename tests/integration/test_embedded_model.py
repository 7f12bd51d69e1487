"""The embedded model, really fetched from the package index (or already in the cache)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cluster.models import manifest
from cluster.models.catalogue import CATALOGUE
from cluster.models.resolve import resolve

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(resolve("smollm2"))


def test_the_cached_folder_is_what_its_manifest_says(folder: Path) -> None:
    entry = CATALOGUE["smollm2"]
    assert manifest.fault(folder, entry, thorough=True) is None
    written = json.loads((folder / manifest.NAME).read_text())
    assert written["wheel_sha256"] == entry.wheel_sha256
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= written["files"].keys()


def test_the_model_answers_through_its_own_chat_template(folder: Path) -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert model.dtype == torch.bfloat16
    assert tokenizer.eos_token_id == model.generation_config.eos_token_id == 2
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    ids = model.float().generate(**prompt, max_new_tokens=16, do_sample=False)
    answer = tokenizer.decode(ids[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "Paris" in answer

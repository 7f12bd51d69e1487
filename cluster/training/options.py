"""Flags of `pilotfish train` to the options of a run; errors name the flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from actors.training.answering import AnswerOptions
from actors.training.block_trainee import BlockTraining
from actors.training.errors import TrainingError
from actors.training.loop import LoopOptions
from actors.training.mechanisms import Shape
from actors.training.run import RunOptions
from cluster.cli.options import FlagError, whole_number

MUON = ("eagle3", "mtp", "external")
"""Mechanisms whose matrices are trained with it: measured with EAGLE-3 alone, against AdamW."""


def run_options(given: Mapping[str, Any], target: str, compile_cache: str) -> RunOptions:
    """target: the resolved folder. Raises TrainingError."""
    for name in ("prompts", "valid"):
        if not given[name].is_file():
            raise TrainingError(f"--{name}: {given[name]} is no file", name)
    try:
        limit = whole_number("--max-answer-bytes", given["max_answer_bytes"])
    except FlagError as error:
        raise TrainingError(str(error), "max_answer_bytes") from error
    return RunOptions(
        mechanism=given["mechanism"],
        target=target,
        prompts=given["prompts"],
        valid=given["valid"],
        output=given["output"],
        num_prompts=given["num_prompts"],
        num_valid=given["num_valid"],
        sampled_share=given["sampled_share"],
        max_bytes=limit,
        draft_vocab=0 if given["layout"] == "transformers" else given["draft_vocab"],
        prompt_share=given["prompt_share"],
        quote_share=given["quote_share"],
        seed=given["seed"],
        init_from=given["init_from"],
        answers=AnswerOptions(
            max_prompt=given["max_prompt_tokens"],
            max_tokens=given["max_tokens"],
            device=given["device"],
            threads=given["threads"],
            compile_cache=compile_cache,
        ),
        shape=_shape(given),
        loop=LoopOptions(
            budget_s=60 * given["minutes"],
            learning_rate=given["learning_rate"],
            seed=given["seed"],
            device=given["device"],
            muon=given["mechanism"] in MUON,
        ),
    )


def _shape(given: Mapping[str, Any]) -> Shape:
    drafts: int = given["drafts"]
    block = BlockTraining()
    # Short blocks most often: they are asked for most, and cost least to learn from.
    short = [max(1, drafts // 2)] * 2 + [max(1, drafts // 3)] * 3
    return Shape(
        layers=given["layers"],
        intermediate=given["intermediate"],
        drafts=drafts,
        last_tap=given["layout"] != "safeailab",
        mask_token=given["mask_token"],
        cut=_numbers("--cut-layers", given["cut_layers"]),
        block=replace(block, sizes=(drafts, *short)),
    )


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    """Of a list with commas. Raises TrainingError."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise TrainingError(f"{flag}: numbers with commas between are wanted, not {text!r}") from (
            error
        )

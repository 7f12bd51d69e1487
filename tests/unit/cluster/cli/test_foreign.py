from __future__ import annotations

from cluster.cli.flags import FLAGS
from cluster.cli.foreign import FOREIGN, normalised, refusal


def test_a_foreign_flag_is_refused_by_name_with_the_nearest_of_ours() -> None:
    line = "--gpu-memory-utilization is not supported; nearest: --kv-cache-memory-bytes"
    assert refusal(["serve", "smollm2", "--gpu-memory-utilization", "0.9"]) == line
    assert refusal(["serve", "--gpu-memory-utilization=0.9"]) == line
    assert refusal(["serve", "--enable-lora"]) == "--enable-lora is not supported"
    assert refusal(["serve", "--dtype", "float32"]) is None


def test_no_flag_of_ours_is_called_foreign_and_every_nearest_flag_exists() -> None:
    ours = {name for flag in FLAGS for name in flag.names} | {"--model", "--address"}
    assert not ours & FOREIGN.keys()
    nearest = {text.split()[0] for text in FOREIGN.values() if text.startswith("--")}
    assert nearest <= ours


def test_underscores_in_flag_names_are_dashes_and_values_stay() -> None:
    given = ["serve", "a_b", "--max_model_len=a_b", "--spec_model", "x_y", "-tp"]
    wanted = ["serve", "a_b", "--max-model-len=a_b", "--spec-model", "x_y", "-tp"]
    assert normalised(given) == wanted


def test_dotted_forms_of_the_json_point_to_the_json() -> None:
    line = refusal(["serve", "--speculative-config.method", "ngram"])
    assert line is not None
    assert "a JSON object" in line

import pytest

from cluster.config import AppArgs, SpeculativeConfig
from cluster.deployments.arguments import ArgumentsError, parse_args


def test_an_unknown_key_is_refused_and_every_known_one_named() -> None:
    with pytest.raises(ArgumentsError) as refused:
        parse_args({"modle": "x"})
    message = str(refused.value)
    assert message.startswith("modle: unknown key (did you mean 'model'?)")
    for name in AppArgs.model_fields:
        assert name in message


def test_an_unknown_nested_key_names_the_keys_of_its_own_level() -> None:
    with pytest.raises(ArgumentsError) as refused:
        parse_args({"speculative_config": {"num_spec_tokens": 3}})
    message = str(refused.value)
    assert message.startswith("speculative_config.num_spec_tokens: unknown key")
    assert "did you mean 'num_speculative_tokens'?" in message
    for name in SpeculativeConfig.model_fields:
        assert name in message
    assert "kv_cache_memory_bytes" not in message


def test_every_bad_value_is_named_with_its_path() -> None:
    with pytest.raises(ArgumentsError) as refused:
        parse_args({"verifier": {"num_cpus": -1}, "block_size": 0})
    message = str(refused.value)
    assert "verifier.num_cpus: " in message
    assert "block_size: " in message


def test_strings_of_the_command_line_become_numbers() -> None:
    assert parse_args({"max_num_seqs": "7"}).max_num_seqs == 7


def test_typed_arguments_pass_as_they_are() -> None:
    args = AppArgs(model="x")
    assert parse_args(args) is args


def test_an_application_without_a_verifier_is_refused() -> None:
    with pytest.raises(ArgumentsError, match=r"verifier\.num_replicas"):
        parse_args({"verifier": {"num_replicas": 0}})

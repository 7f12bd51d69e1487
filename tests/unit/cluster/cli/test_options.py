from __future__ import annotations

import pytest

from cluster.cli.flags import BY_NAME, FLAGS, help_of
from cluster.cli.options import FlagError, app_args, whole_number
from cluster.config import AppArgs, GatewayArgs


def make(host: str = "127.0.0.1", **given: object) -> AppArgs:
    return app_args(None, None, host, given)


def refused(**given: object) -> str:
    with pytest.raises(FlagError) as caught:
        make(**given)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_no_flag_gives_the_configurations_own_defaults() -> None:
    assert make() == AppArgs()


def test_every_flag_leads_to_a_field_and_says_its_default() -> None:
    assert all(help_of(flag) for flag in FLAGS)
    assert help_of(BY_NAME["--max-num-seqs"]) == "Requests decoded at once. [default: 32]"
    assert help_of(BY_NAME["--spec-tokens"]).endswith("[default: 4]")
    assert "[default" not in help_of(BY_NAME["--speculative-config"])


def test_each_flag_sets_its_own_field_and_no_other() -> None:
    values: dict[str, object] = {
        "--served-model-name": "name",
        "--tokenizer": "t",
        "--revision": "r",
        "--dtype": "float64",
        "--max-model-len": "77",
        "--max-num-seqs": 7,
        "--max-num-batched-tokens": 70,
        "--max-num-queued-reqs": 9,
        "--max-num-queued-tokens": 90,
        "--block-size": 8,
        "--kv-cache-memory-bytes": "1024",
        "--enable-prefix-caching": False,
        "--enforce-eager": True,
        "--batch-invariant": True,
        "--tensor-parallel-size": 1,
        "--verifier-threads": 2,
        "--speculative-config": '{"method": "ngram"}',
        "--spec-method": "ngram",
        "--spec-tokens": 9,
        "--verifiers": 2,
        "--drafters": 3,
        "--verifier-gpus": 1.0,
        "--drafter-gpus": 0.5,
        "--cohorts": '[{"name": "c", "task": "code"}]',
        "--grpc-port": 5,
        "--otlp-traces-endpoint": "http://127.0.0.1:4317",
    }
    # A model is refused without its method.
    paired = {"--tls-certificate", "--tls-key", "--spec-model"}
    assert values.keys() | paired == BY_NAME.keys()
    for name, value in values.items():
        flag = BY_NAME[name]
        changed = make(**{flag.key: value}).model_dump()
        expected = AppArgs().model_dump()
        node, wanted = changed, expected
        for step in flag.path[:-1]:
            node, wanted = node[step], wanted[step]
        if name == "--speculative-config":
            assert node["speculative_config"]["method"] == "ngram"
        elif name == "--cohorts":
            assert [(rule["name"], rule["task"]) for rule in node["cohorts"]] == [("c", ("code",))]
        else:
            assert str(node[flag.path[-1]]) == str(value)
        wanted[flag.path[-1]] = node[flag.path[-1]]
        assert changed == expected
    pair = make(tls_certificate="c.pem", tls_key="k.pem").gateway
    assert (pair.tls_certificate, pair.tls_key) == ("c.pem", "k.pem")
    drafting = make(spec_method="dspark", spec_model="m").speculative_config
    assert drafting is not None
    assert (drafting.method, drafting.model) == ("dspark", "m")
    with pytest.raises(FlagError, match="method is not given"):
        make(spec_model="m")


def test_the_model_is_an_argument_or_a_flag_but_one_model() -> None:
    assert app_args("a/b", None, "127.0.0.1", {}).model == "a/b"
    assert app_args(None, "a/b", "127.0.0.1", {}).model == "a/b"
    assert app_args("a/b", "a/b", "127.0.0.1", {}).model == "a/b"
    with pytest.raises(FlagError, match="--model: 'c/d' and the argument 'a/b' differ"):
        app_args("a/b", "c/d", "127.0.0.1", {})


def test_both_doors_listen_on_the_host() -> None:
    assert make("0.0.0.0").gateway == GatewayArgs(grpc_host="0.0.0.0")


def test_shortcuts_and_json_add_up_and_must_not_contradict() -> None:
    both = make(speculative_config='{"method": "ngram", "prompt_lookup_max": 3}', spec_tokens=7)
    assert both.speculative_config is not None
    assert (both.speculative_config.method, both.speculative_config.prompt_lookup_max) == (
        "ngram",
        3,
    )
    assert both.speculative_config.num_speculative_tokens == 7
    text = refused(speculative_config='{"method": "ngram"}', spec_method="suffix")
    assert text == "--spec-method: --speculative-config says method = 'ngram'; give one"


def test_null_is_standard_decode() -> None:
    assert make(speculative_config="null").speculative_config is None
    assert "null switches speculation off" in refused(speculative_config="null", spec_tokens=1)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"max_num_seqs": 0}, "--max-num-seqs: must be greater than or equal to 1, not '0'"),
        (
            {"dtype": "float16"},
            "--dtype: must be 'auto', 'bfloat16', 'float32' or 'float64', not 'float16'",
        ),
        ({"verifiers": -1}, "--verifiers: must be greater than or equal to 0, not '-1'"),
        ({"spec_tokens": 99}, "--spec-tokens: must be less than or equal to 32, not '99'"),
        (
            {"speculative_config": '{"num_speculative_tokens": 99}'},
            "--speculative-config: num_speculative_tokens: must be less than or equal to 32,"
            " not '99'",
        ),
        (
            {"speculative_config": "{"},
            "--speculative-config: not JSON"
            " (Expecting property name enclosed in double quotes): '{'",
        ),
        (
            {"speculative_config": "[1]"},
            "--speculative-config: a JSON object or a list of them is wanted, not '[1]'",
        ),
        (
            {"speculative_config": "[" * 100_000},
            f"--speculative-config: not JSON (not readable): '{'[' * 60}'",
        ),
        (
            {"spec_method": "custom_class"},
            "--speculative-config: method 'custom_class' needs 'model'",
        ),
        ({"cohorts": "{}"}, "--cohorts: a JSON array is wanted, not '{}'"),
        (
            {"cohorts": '[{"name": "a"}, {"name": "{task}"}]'},
            "--cohorts: 1: cohort name '{task}': {task} may be anything; list its values in the"
            " rule",
        ),
        (
            {"cohorts": '[{"name": "a", "shape": ["json"]}]'},
            "--cohorts: 0.shape.0: must be 'structured', 'tools' or 'plain', not 'json'",
        ),
        (
            {"cohorts": '[{"name": "a", "taks": "x"}]'},
            "--cohorts: 'taks' is not supported; did you mean 'task'?"
            " Known: model, name, prompt, shape, task, tenant",
        ),
        ({"tls_key": "k.pem"}, "--tls-certificate and --tls-key come together"),
        (
            {"tensor_parallel_size": 2, "verifier_gpus": 2.0},
            "with --tensor-parallel-size above 1 each rank takes one GPU or none, not 2",
        ),
        (
            {"max_model_len": "long"},
            "--max-model-len: 'long' is not a number (8192, 8k = 8000, 8K = 8192)",
        ),
    ],
)
def test_a_bad_value_gives_one_line_that_names_its_flag(
    given: dict[str, object], line: str
) -> None:
    assert refused(**given) == line


def test_an_unknown_key_of_the_json_names_the_close_and_the_known_ones() -> None:
    text = refused(speculative_config='{"num_spec_tokens": 3}')
    assert text.startswith(
        "--speculative-config: 'num_spec_tokens' is not supported;"
        " did you mean 'num_speculative_tokens'? Known: adaptive, draft_tensor_"
    )


def test_numbers_are_read_as_vllm_reads_them() -> None:
    read = {text: whole_number("--x", text) for text in ("8192", "8k", "8K", "1.5k", "2g", "2G")}
    assert read == {
        "8192": 8192, "8k": 8000, "8K": 8192, "1.5k": 1500, "2g": 2_000_000_000, "2G": 2 << 30
    }  # fmt: skip
    assert whole_number("--x", "-1") == -1  # for its bounds to refuse
    for text in ("", "-", "--1", "1.5", "1e9", "8kk", "١"):
        with pytest.raises(FlagError, match="not a number"):
            whole_number("--x", text)
    assert make(max_model_len="auto").max_model_len is None

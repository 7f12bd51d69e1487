"""Cohort rules in a configuration: what they say reaches the gateway, and faults are named."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from cluster.cohort_rules import CohortRule, cohorts_of
from cluster.deployments.arguments import ArgumentsError, parse_args
from policies.cohorts import DEFAULT, PROMPT_CLASSES, SHAPES, Traits


def values_of(field: str) -> tuple[str, ...]:
    """The closed set of a list's entries."""
    listed = CohortRule.model_fields[field].annotation
    return get_args(get_args(listed)[0])


def test_rules_of_the_configuration_are_the_policys_rules() -> None:
    args = parse_args(
        {
            "cohorts": [
                {"name": "json", "shape": "structured"},
                {"name": "{task}-{prompt}", "task": ["code", "chat"], "prompt": ["short", "long"]},
            ]
        }
    )
    cohorts = cohorts_of(args.cohorts)
    assert cohorts.names == (
        "json", "code-short", "code-long", "chat-short", "chat-long", DEFAULT
    )  # fmt: skip
    assert cohorts.of(Traits(task="code", prompt_tokens=5000)) == "code-long"
    assert cohorts.of(Traits(task="code", prompt_tokens=1000)) == DEFAULT
    assert cohorts.of(Traits(task="code", structured=True)) == "json"


def test_the_closed_sets_are_the_policys() -> None:
    assert values_of("shape") == SHAPES
    assert values_of("prompt") == tuple(name for name, _ in PROMPT_CLASSES)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([{"task": "x"}], "cohorts.0.name: Field required"),
        ([{"name": "a"}, {"name": "b c"}], r"cohorts.1: cohort name 'b c': up to 64 letters"),
        (
            [{"name": "{user}"}],
            r"cohorts.0: cohort name .*unknown \{user\}; known: model, tenant, task",
        ),
        ([{"name": "{task}"}], r"cohorts.0: cohort name .*\{task\} may be anything"),
        ([{"name": "a", "task": ["ok", "not ok"]}], r"cohorts.0.task.1: String should match"),
        ([{"name": "a", "tenant": "x" * 65}], r"cohorts.0.tenant.0: String should match"),
        ([{"name": "a", "prompt": ["tiny"]}], r"cohorts.0.prompt.0: Input should be 'short'"),
        ([{"name": "a", "model": [7]}], r"cohorts.0.model.0: Input should be a valid string"),
        (
            [{"name": "a", "shapes": "plain"}],
            r"cohorts.0.shapes: unknown key \(did you mean 'shape'\?\); known keys: model, name,",
        ),
        ([{"name": f"c{i}"} for i in range(64)], r"cohorts: the rules give 65 cohorts; at most 64"),
        ("code", "cohorts: "),
    ],
)
def test_a_fault_is_named_with_its_rule_and_field(rules: Any, says: str) -> None:
    with pytest.raises(ArgumentsError, match=says):
        parse_args({"cohorts": rules})

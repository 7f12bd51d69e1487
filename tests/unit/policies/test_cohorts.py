"""A request's cohort is one of a bounded set of names, whatever clients send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cohorts import DEFAULT, CohortError, Cohorts, Rule, Traits

RULES = (
    Rule("json", shape=("structured",)),
    Rule("{task}-{prompt}", task=("code", "chat")),
    Rule("gold", tenant=("acme", "ajax"), model=("big",)),
    Rule("long", prompt=("long", "huge")),
)
words = st.sampled_from(["", "code", "chat", "acme", "ajax", "big", "x", "{task}", "a b", "é"])
traits = st.builds(
    Traits, words, words, words, st.booleans(), st.booleans(), st.integers(0, 1_000_000)
)


@given(st.lists(traits, max_size=50))
def test_no_input_makes_a_cohort_that_was_not_there(requests: list[Traits]) -> None:
    cohorts = Cohorts(RULES)
    assert {cohorts.of(request) for request in requests} <= set(cohorts.names)
    assert len(cohorts.names) == 1 + 8 + 1 + 1 + 1


def test_the_first_rule_that_takes_a_request_names_it() -> None:
    cohorts = Cohorts(RULES)
    assert cohorts.of(Traits(task="code", structured=True)) == "json"
    assert cohorts.of(Traits(task="code", tenant="acme", prompt_tokens=512)) == "code-short"
    assert cohorts.of(Traits(task="code", prompt_tokens=513)) == "code-medium"
    assert cohorts.of(Traits(task="poems", tenant="ajax", model="big")) == "gold"
    assert cohorts.of(Traits(tenant="ajax", model="small")) == DEFAULT
    assert cohorts.of(Traits(prompt_tokens=10**7)) == "long"


def test_grammar_counts_before_tools() -> None:
    cohorts = Cohorts([Rule("{shape}")])
    assert cohorts.of(Traits(structured=True, tools=True)) == "structured"
    assert cohorts.of(Traits(tools=True)) == "tools"
    assert cohorts.of(Traits()) == "plain"


def test_without_rules_everything_is_default() -> None:
    assert Cohorts().names == (DEFAULT,)
    assert Cohorts().of(Traits(task="anything")) == DEFAULT


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([Rule("{task}")], r"\{task\} may be anything"),
        ([Rule("{user}")], "known: model, tenant, task, shape, prompt"),
        ([Rule("{}")], "unknown"),
        ([Rule("{task.upper}", task=("a",))], "unknown"),
        ([Rule("{task", task=("a",))], "expected '}'"),
        ([Rule("a b")], "'a b'"),
        ([Rule("")], "''"),
        ([Rule("{task}", task=("x" * 65,))], "up to 64"),
        ([Rule("{tenant}", tenant=tuple(f"t{i}" for i in range(64)))], "65 cohorts; at most 64"),
    ],
)
def test_rules_that_could_give_other_names_are_refused(rules: list[Rule], says: str) -> None:
    with pytest.raises(CohortError, match=says):
        Cohorts(rules)

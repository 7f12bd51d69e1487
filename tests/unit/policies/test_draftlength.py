from policies import draftlength
from policies.draftlength import DraftPlan


def test_nobody_to_draft_means_standard_decode_with_the_reason() -> None:
    assert draftlength.fixed(4, drafters_up=0) == DraftPlan(0, "no-drafter")


def test_the_configured_depth_holds_while_one_drafter_is_up() -> None:
    assert draftlength.fixed(4, drafters_up=1) == DraftPlan(4, "configured")


def test_a_colocated_drafter_needs_no_lease() -> None:
    assert draftlength.fixed(3, drafters_up=0, colocated=True) == DraftPlan(3, "configured")


def test_depth_zero_is_off_whoever_is_up() -> None:
    assert draftlength.fixed(0, drafters_up=5) == DraftPlan(0, "off")

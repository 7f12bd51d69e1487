"""The worlds of the law tests and of `infra/bench/policy.py`: recorded costs, and kinds of text.

`MACHINE` is SmolLM2-135M on the native executor, two cores, bf16: seconds of a forward by rows,
straight between them; rows are dear there, and beyond four clients hardly any draft pays. `GPU` is
the published fit of Llama-3.1-8B on an H100 (SpecDecode-Bench, arXiv 2601.11580): 7.1 ms a step and
21 µs a row, where drafts pay in every batch of the tests. Acceptance by position is shaped after
what drafters of each kind are reported to do on such texts: one-pass heads 3.6 to 6 tokens a round
on code and 2.4 to 3.6 on chat (DSpark's and EAGLE-3's tables), conditional rates of 0.65 to 0.72
that hardly fall with the position (EAGLE traces of SpecDecode-Bench), suffix trees nearly all of a
copied text and little of a new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies import estimate_cost, estimate_draft
from policies.adaptive import Adaptive
from policies.choice import Arm
from policies.control import Windows
from policies.rehearsal import Machine, Profile

SUFFIX = Arm("suffix", remote=False, max_depth=8)
LEARNED = Arm("dflash", remote=True, max_depth=7)
MACHINE = Machine(
    rows=(1, 4, 8, 12, 32),
    forward_s=(0.0086, 0.013, 0.024, 0.030, 0.074),
    drafts={SUFFIX: (0.00005, 0.00001, 0.0), LEARNED: (0.0022, 0.00025, 0.0)},
    wire_s=0.0004,
)
GPU = Machine(
    rows=(1, 1024),
    forward_s=(0.0071 + 0.000021, 0.0071 + 0.000021 * 1024),
    drafts={SUFFIX: (0.00005, 0.000005, 0.0), LEARNED: (0.0013, 0.00001, 0.0)},
    wire_s=0.0004,
)
TEXTS: Mapping[str, Mapping[Arm, Profile]] = {
    "copy": {
        SUFFIX: Profile(0.90, (0.90, 0.92, 0.93)),
        LEARNED: Profile(1.0, (0.75, 0.72, 0.70)),
    },
    "code": {
        SUFFIX: Profile(0.45, (0.55, 0.60, 0.65)),
        LEARNED: Profile(1.0, (0.82, 0.78, 0.75)),
    },
    "chat": {
        SUFFIX: Profile(0.25, (0.35, 0.40)),
        LEARNED: Profile(1.0, (0.62, 0.56, 0.52)),
    },
}


def make_policy(
    machine: Machine = MACHINE, *, depth: int = 8, windows: Windows | None = None
) -> Adaptive:
    """With the profile that a start would measure on that machine."""
    steps = [
        estimate_cost.Sample(rows, seconds)
        for rows, seconds in zip(machine.rows, machine.forward_s, strict=True)
    ]
    drafts = {
        arm: estimate_draft.profiled(
            [
                (sessions, tokens, machine.draft_s(arm, sessions, tokens))
                for sessions in (1, 8, 32)
                for tokens in (1, arm.max_depth)
            ],
            machine.wire_s,
        )
        for arm in machine.drafts
    }
    return Adaptive(estimate_cost.profiled(steps), drafts, depth=depth, windows=windows)

"""The best drafter there can be: every draft is what the target writes."""

from __future__ import annotations

from tests.drafters.knowing import KnowingDrafter


class OracleDrafter(KnowingDrafter):
    mechanism = "oracle"

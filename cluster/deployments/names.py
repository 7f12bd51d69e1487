"""Names of the Serve application and its deployments: YAML files and operators use them."""

from __future__ import annotations

APP = "pilotfish"
GATEWAY = "Gateway"
VERIFIER = "Verifier"
DRAFTER = "Drafter"
POLICY = "Policy"


def drafter(mechanism: str) -> str:
    """Of the drafters of one of several mechanisms."""
    return f"{DRAFTER}-{mechanism.replace('+', '-')}"

"""What a policy snapshot says to the engine's own policy: where to begin, how often to measure.

The snapshot's plans and drafters are the business of `actors.engine.plan` and of the port.
"""

from __future__ import annotations

import logging

from actors.policy.errors import ReportRefused
from actors.policy.messages import totals_of, windows_of
from pilotfish.v1 import control_pb2 as control
from policies.adaptive import Adaptive

logger = logging.getLogger(__name__)


def told(policy: Adaptive, snapshot: control.PolicySnapshot) -> None:
    """On the engine's thread, with every newer snapshot and with the newest one when a policy is
    made. What cannot be is said and left out: the policy goes on with what it knows itself."""
    try:
        pooled = totals_of(snapshot.pooled, pooled=True)
        windows = policy.windows
        if snapshot.HasField("config"):
            windows = windows_of(snapshot.config, policy.windows.seed)
    except ReportRefused as error:
        logger.warning("snapshot %d.%d: %s", snapshot.term, snapshot.version, error)
        return
    policy.begin(pooled)
    policy.windows = windows

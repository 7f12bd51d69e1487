"""What holds for all tests: Ray's settings before anyone imports it, one hypothesis profile.

Ray reads RAY_AUTH_MODE when it is imported, and unit tests may import it long before the
integration tests start a cluster; a late setting would leave the two ends disagreeing.
"""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Examples may take as long as a busy machine needs.
settings.register_profile("pilotfish", deadline=None)
settings.load_profile("pilotfish")

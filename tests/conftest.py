"""What holds for all tests: Ray's settings before anyone imports it, one hypothesis profile.

Ray reads its authentication when it is imported, and unit tests may import it long before the
integration tests start a cluster; a late setting would leave the two ends disagreeing. It listens
on the machine's address, so a cluster of the tests wants a token like any other private one.
"""

from __future__ import annotations

import os

from hypothesis import settings

from cluster.serving_local import private_token

os.environ.update(private_token(os.environ))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Ray's processes are forked and replaced at once: gRPC has nothing to mend in the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Examples may take as long as a busy machine needs.
settings.register_profile("pilotfish", deadline=None)
settings.load_profile("pilotfish")

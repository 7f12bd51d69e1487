"""One hypothesis profile for everybody: examples may take as long as a busy machine needs."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("pilotfish", deadline=None)
settings.load_profile("pilotfish")

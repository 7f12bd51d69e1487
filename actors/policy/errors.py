"""What the policy actor refuses, so that who asked can tell it from a policy actor that is down."""

from __future__ import annotations


class PolicyError(Exception):
    """Base of the policy actor's errors."""


class ReportRefused(PolicyError, ValueError):
    """A verifier's report breaks the bounds of `control.proto`; nothing of it was taken."""


class Superseded(PolicyError):
    """A policy actor with a larger term speaks now; this one answers nobody any more."""

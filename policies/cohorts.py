"""Which cohort a request belongs to: rules over what is known of it when it comes.

A cohort is the unit of policy, of control and of rollout (DESIGN §3), and a label of metrics, so
there may never be more of them than a bound, whatever clients send. Every name is therefore known
when the rules are read: a rule may put a request's own values into the name, but only those that
the rule lists. What no rule takes is in `default`. The same request is in the same cohort on every
replica, because nothing is counted or remembered.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT = "default"
MAX_COHORTS = 64
"""`default` included."""
PROMPT_CLASSES = (("short", 512), ("medium", 4096), ("long", 32768), ("huge", None))
"""Names of prompt lengths with the most tokens of each."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_FIELDS = ("model", "tenant", "task", "shape", "prompt")


class CohortError(ValueError):
    """Rules that cannot be: an unknown placeholder, a bad name, or too many cohorts."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What rules may look at. task: what the client declared (`X-Pilotfish-Cohort`, the gRPC field,
    OpenAI `metadata`); empty when it did not."""

    model: str = ""
    tenant: str = ""
    task: str = ""
    structured: bool = False
    tools: bool = False
    prompt_tokens: int = 0

    @property
    def shape(self) -> str:
        """Grammar first: it changes acceptance most."""
        return "structured" if self.structured else "tools" if self.tools else "plain"

    @property
    def prompt(self) -> str:
        """The class of the prompt's length."""
        return next(
            name for name, most in PROMPT_CLASSES if most is None or self.prompt_tokens <= most
        )


SHAPES = ("structured", "tools", "plain")


@dataclass(frozen=True, slots=True)
class Rule:
    """Takes a request whose every named trait is one of those listed; an empty list is any value.

    name: the cohort; `{model}`, `{tenant}`, `{task}`, `{shape}` and `{prompt}` stand for the
    request's own value, and are allowed where the rule bounds that value.
    """

    name: str
    model: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()

    def takes(self, traits: Traits) -> bool:
        """Whether the request is this rule's."""
        return all(
            not (listed := getattr(self, field)) or getattr(traits, field) in listed
            for field in _FIELDS
        )

    def cohort(self, traits: Traits) -> str:
        """The name for a request that this rule takes."""
        return self.name.format_map({field: getattr(traits, field) for field in _FIELDS})

    def names(self) -> list[str]:
        """Every name this rule can give. Raises CohortError for one that could be anything."""
        try:
            used = {
                field for _, field, _, _ in string.Formatter().parse(self.name) if field is not None
            }
        except ValueError as error:
            raise CohortError(f"cohort name {self.name!r}: {error}") from None
        if unknown := sorted(used - set(_FIELDS)):
            known = ", ".join(_FIELDS)
            raise CohortError(
                f"cohort name {self.name!r}: unknown {{{unknown[0]}}}; known: {known}"
            )
        order = [field for field in _FIELDS if field in used]
        values = [self._values(field) for field in order]
        return [
            self.name.format_map(dict(zip(order, row, strict=True)))
            for row in itertools.product(*values)
        ]

    def _values(self, field: str) -> tuple[str, ...]:
        closed = {"shape": SHAPES, "prompt": tuple(name for name, _ in PROMPT_CLASSES)}
        values: tuple[str, ...] = getattr(self, field) or closed.get(field, ())
        if not values:
            raise CohortError(
                f"cohort name {self.name!r}: {{{field}}} may be anything; list its values in the "
                "rule"
            )
        return values


class Cohorts:
    """Rules in order; the first that takes a request names its cohort.

    Raises CohortError where the rules could give more than `most` names, `default` included, or
    one that is no plain label."""

    def __init__(self, rules: Sequence[Rule] = (), most: int = MAX_COHORTS) -> None:
        self._rules = tuple(rules)
        named = [name for rule in self._rules for name in rule.names()]
        bad = next((name for name in named if not _NAME.fullmatch(name)), None)
        if bad is not None:
            raise CohortError(
                f"cohort name {bad!r}: up to 64 letters, digits, '.', '_', ':' and '-'"
            )
        self.names: tuple[str, ...] = tuple(dict.fromkeys((*named, DEFAULT)))
        if len(self.names) > most:
            raise CohortError(f"the rules give {len(self.names)} cohorts; at most {most} are kept")

    def of(self, traits: Traits) -> str:
        """The cohort of a request: always one of `names`."""
        return next((rule.cohort(traits) for rule in self._rules if rule.takes(traits)), DEFAULT)

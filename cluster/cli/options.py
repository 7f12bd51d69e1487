"""Flags of `pilotfish serve` to AppArgs: pure, with errors that name the flag."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from cluster.cli.flags import BY_NAME, FLAGS, Flag
from cluster.cohort_rules import CohortRule
from cluster.config import AppArgs, GatewayArgs, PoolArgs, SpeculativeConfig, as_given

CONFIG = BY_NAME["--speculative-config"]
COHORTS = BY_NAME["--cohorts"]
_JSON = {flag.path[0]: flag for flag in (CONFIG, COHORTS)}

_UNITS = {
    unit: base**power
    for base, units in ((1000, "kmgt"), (1024, "KMGT"))
    for power, unit in enumerate(units, 1)
}
_MODELS: dict[str, type[BaseModel]] = {
    "speculative_config": SpeculativeConfig,
    "verifier": PoolArgs,
    "drafter": PoolArgs,
    "gateway": GatewayArgs,
    "cohorts": CohortRule,
}


class FlagError(ValueError):
    """One line that names the flag."""


def app_args(
    model: str | None, model_flag: str | None, host: str, given: Mapping[str, object]
) -> AppArgs:
    """AppArgs from the flags that were given, keyed by `Flag.key`; None is not given.

    `host` is where both doors listen. Raises FlagError.
    """
    if model is not None and model_flag is not None and model != model_flag:
        raise FlagError(f"--model: {model_flag!r} and the argument {model!r} differ; give one")
    fields: dict[str, Any] = {"gateway": {"grpc_host": host}}
    if model or model_flag:
        fields["model"] = model or model_flag
    flags = [flag for flag in FLAGS if given.get(flag.key) is not None]
    for flag in flags:
        _put(fields, flag, _value(flag, given[flag.key]))
    try:
        return AppArgs.model_validate(_with_defaults(fields))
    except ValidationError as error:
        raise FlagError(_line(error, {flag.name for flag in flags})) from None


def whole_number(name: str, text: str) -> int:
    """8192, 8k (8000), 8K (8192), 2G: vLLM's spelling of numbers; a negative one is a number too,
    whose bounds say what is wrong with it. Raises FlagError."""
    found = re.fullmatch(r"(-?\d{1,18}(?:\.\d{1,6})?)([kmgtKMGT]?)", text.strip(), re.ASCII)
    if found is None or ("." in found[1] and not found[2]):
        raise FlagError(f"{name}: {text!r} is not a number (8192, 8k = 8000, 8K = 8192)")
    if not found[2]:
        return int(found[1])
    return int(float(found[1]) * _UNITS[found[2]])


def _value(flag: Flag, value: object) -> object:
    if flag is CONFIG:
        return _object(str(value))
    if flag is COHORTS:
        return _array(str(value))
    if flag.name == "--kv-cache-memory-bytes":
        return whole_number(flag.name, str(value))
    if flag.name == "--max-model-len":
        return None if value == "auto" else whole_number(flag.name, str(value))
    return value


def _object(text: str) -> dict[str, Any] | list[dict[str, Any]] | None:
    value: dict[str, Any] | list[dict[str, Any]] | None = _parsed(CONFIG, text)
    several = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(one, dict) for one in several):
        raise FlagError(
            f"{CONFIG.name}: a JSON object or a list of them is wanted, not {text[:60]!r}"
        )
    return value


def _array(text: str) -> list[Any]:
    value = _parsed(COHORTS, text)
    if not isinstance(value, list):
        raise FlagError(f"{COHORTS.name}: a JSON array is wanted, not {text[:60]!r}")
    return value


def _parsed(flag: Flag, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "not readable"
        raise FlagError(f"{flag.name}: not JSON ({reason}): {text[:60]!r}") from None


def _put(fields: dict[str, Any], flag: Flag, value: object) -> None:
    """Set one field; a shortcut that contradicts the JSON is refused."""
    node = fields
    for step in flag.path[:-1]:
        node = node.setdefault(step, {})
        if node is None:
            raise FlagError(f"{flag.name}: {CONFIG.name} null switches speculation off")
        if isinstance(node, list):
            raise FlagError(f"{flag.name}: {CONFIG.name} has several mechanisms; say it there")
    last = flag.path[-1]
    if flag.path[0] == CONFIG.path[0] and node.get(last, value) != value:
        raise FlagError(f"{flag.name}: {CONFIG.name} says {last} = {node[last]!r}; give one")
    node[last] = value


def _with_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """A pool's defaults are AppArgs' own (a drafter asks for less than PoolArgs does)."""
    defaults = AppArgs()
    return {
        name: {**getattr(defaults, name).model_dump(), **value}
        if name in ("verifier", "drafter")
        else value
        for name, value in fields.items()
    }


def _line(error: ValidationError, given: set[str]) -> str:
    """The first fault of a validation, as one line that starts with the flag."""
    fault = error.errors(include_url=False, include_context=False)[0]
    path = tuple(str(step) for step in as_given(fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return _unknown_key(path)
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if not path:
        return _with_flag_names(message)
    name, whole = _flag_name(path, given), _JSON.get(path[0])
    if whole is not None and name == whole.name and len(path) > 1:
        message = f"{'.'.join(path[1:])}: {message}"
    elif len(path) == 1 and path[0] in _MODELS and whole is None:
        return _with_flag_names(message)
    value = fault["input"]
    scalar = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f"{name}: {message}" + (f", not {str(value)[:60]!r}" if scalar else "")


def _flag_name(path: tuple[str, ...], given: set[str]) -> str:
    """The flag the user wrote: the shortcut when it was that, else the JSON."""
    exact = [flag.name for flag in FLAGS if flag.path == path]
    if exact and (exact[0] in given or path[:1] != CONFIG.path):
        return exact[0]
    return _JSON[path[0]].name if path[0] in _JSON else ".".join(path)


def _unknown_key(path: tuple[str, ...]) -> str:
    known = sorted(_MODELS[path[0]].model_fields) if path[0] in _MODELS else []
    close = difflib.get_close_matches(path[-1], known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    name = _JSON[path[0]].name if path[0] in _JSON else path[0]
    return f"{name}: {path[-1]!r} is not supported{hint} Known: {', '.join(known)}"


def _with_flag_names(message: str) -> str:
    """Field names of a message about several fields, as the flags that set them."""
    names = {flag.path[-1]: flag.name for flag in FLAGS if flag.path[0] != CONFIG.path[0]}
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda word: names.get(word[0], word[0]), message)

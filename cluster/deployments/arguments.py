"""From a YAML or CLI mapping to `AppArgs`, with errors that a person can act on."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from cluster.config import AppArgs, as_given


class ArgumentsError(ValueError):
    """One line for each bad argument; an unknown key comes with the known ones."""


def parse_args(args: AppArgs | Mapping[str, Any]) -> AppArgs:
    """Validate the arguments of `build`. Raises ArgumentsError."""
    if isinstance(args, AppArgs):
        return _servable(args)
    try:
        return _servable(AppArgs.model_validate(dict(args)))
    except ValidationError as error:
        raise ArgumentsError(explained(error, AppArgs)) from None


def explained(error: ValidationError, root: type[BaseModel]) -> str:
    """What is wrong with a mapping that was to be a `root`, each field by its path."""
    faults = error.errors()
    lines = [_line(root, item["type"], as_given(item["loc"]), item["msg"]) for item in faults]
    return "; ".join(lines)


def _servable(args: AppArgs) -> AppArgs:
    if args.verifier.num_replicas < 1:
        raise ArgumentsError("verifier.num_replicas: at least one verifier is needed")
    return args


def _line(root: type[BaseModel], kind: str, loc: Sequence[str | int], message: str) -> str:
    path = ".".join(str(part) for part in loc)
    if kind != "extra_forbidden":
        message = message.removeprefix("Value error, ")
        return f"{path}: {message}" if path else message
    known = sorted(_model_at(root, loc[:-1]).model_fields)
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{path}: unknown key{hint}; known keys: {', '.join(known)}"


def _model_at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel]:
    """The model that holds the field at `loc`; optional fields and lists are looked through."""
    for part in loc:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        inner = None if field is None else _model_in(field.annotation)
        if inner is None:
            break
        model = inner
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    options = typing.get_args(annotation) or (annotation,)
    models = (o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return next(models, None)

"""A message's bytes looked through before they become objects: what is in them, and how much.

Two bytes of wire are a submessage, and parsing makes an object of it: without a look first, a
message well within its bytes would buy its client seconds of everybody's event loop. The walk
stops at the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

MAX_FIELDS = 16384
"""Of one message and all within it; 4096 chat messages fit, and packed token ids are one field."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED64,
    FieldDescriptor.TYPE_FIXED64: _FIXED64,
    FieldDescriptor.TYPE_SFIXED64: _FIXED64,
    FieldDescriptor.TYPE_FLOAT: _FIXED32,
    FieldDescriptor.TYPE_FIXED32: _FIXED32,
    FieldDescriptor.TYPE_SFIXED32: _FIXED32,
}
_LENGTHS = frozenset(
    {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE}
)
Found = tuple[str, FieldDescriptor, int, int]
"""(dotted name from the outermost message, field, start and end of its value in the bytes)."""


class WireError(ValueError):
    """The bytes are no message of that type. `param`: the field at fault, where there is one."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def check(data: bytes, message: type[Message]) -> None:
    """Raises WireError for bytes that are cut off, for a field this side does not know, and for
    more than MAX_FIELDS fields."""
    for count, (path, *_) in enumerate(_fields(data, message)):
        if count >= MAX_FIELDS:
            raise WireError(f"The message has more than {MAX_FIELDS} fields.", path)


def broken_text(data: bytes, message: type[Message]) -> str | None:
    """The name of the first string that is not UTF-8, of bytes that pass `check`."""
    for path, field, start, end in _fields(data, message):
        if field.type == FieldDescriptor.TYPE_STRING:
            try:
                str(data[start:end], "utf-8")
            except UnicodeDecodeError:
                return path
    return None


def _fields(data: bytes, message: type[Message]) -> Iterator[Found]:
    root = cast(Descriptor, message.DESCRIPTOR)
    parts = [("", root, 0, len(data))]
    while parts:
        prefix, descriptor, at, end = parts.pop()
        known = descriptor.fields_by_number
        while at < end:
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            start, at = _value(data, at, kind)
            if at > end or not number:
                raise WireError(f"The message is no {root.full_name}.")
            field = known.get(number)
            if field is None or not _takes(field, kind):
                name = f"{descriptor.full_name}, field {number}"
                raise WireError(f"This server does not know {name}.", str(number))
            path = prefix + field.name
            if field.message_type is not None:
                parts.append((path + ".", field.message_type, start, at))
            yield path, field, start, at


def _value(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Where the value of a field begins and ends."""
    if kind == _BYTES:
        length, at = _varint(data, at)
        return at, at + length
    if kind == _VARINT:
        return at, _varint(data, at)[1]
    if kind in (_FIXED64, _FIXED32):
        return at, at + (8 if kind == _FIXED64 else 4)
    return at, len(data) + 1  # groups and what is no wire type at all


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, the place after it); past the end of the data the place is past it as well."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    return value, len(data) + 1


def _takes(field: FieldDescriptor, kind: int) -> bool:
    """Whether a field may come in this wire type; numbers of a repeated one may be packed."""
    if field.type in _LENGTHS:
        return kind == _BYTES
    return kind == _FIXED.get(field.type, _VARINT) or (field.is_repeated and kind == _BYTES)

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class DraftWish(_message.Message):
    __slots__ = ("pool", "why")
    POOL_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    pool: str
    why: str
    def __init__(self, pool: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class DrafterStanding(_message.Message):
    __slots__ = ("wanted", "late_share")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    LATE_SHARE_FIELD_NUMBER: _ClassVar[int]
    wanted: bool
    late_share: float
    def __init__(self, wanted: bool = ..., late_share: _Optional[float] = ...) -> None: ...

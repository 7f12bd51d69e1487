from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CohortFigures(_message.Message):
    __slots__ = ("cohort", "decisions", "depths", "ratio", "alarms")
    COHORT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    DEPTHS_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    cohort: str
    decisions: _containers.RepeatedCompositeFieldContainer[DecisionCount]
    depths: _containers.RepeatedCompositeFieldContainer[NewestDepth]
    ratio: SpeculationRatio
    alarms: int
    def __init__(self, cohort: _Optional[str] = ..., decisions: _Optional[_Iterable[_Union[DecisionCount, _Mapping]]] = ..., depths: _Optional[_Iterable[_Union[NewestDepth, _Mapping]]] = ..., ratio: _Optional[_Union[SpeculationRatio, _Mapping]] = ..., alarms: _Optional[int] = ...) -> None: ...

class DecisionCount(_message.Message):
    __slots__ = ("mechanism", "placement", "reason", "count")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    placement: str
    reason: str
    count: int
    def __init__(self, mechanism: _Optional[str] = ..., placement: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class NewestDepth(_message.Message):
    __slots__ = ("mechanism", "depth")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    depth: int
    def __init__(self, mechanism: _Optional[str] = ..., depth: _Optional[int] = ...) -> None: ...

class SpeculationRatio(_message.Message):
    __slots__ = ("ratio", "low", "high")
    RATIO_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    ratio: float
    low: float
    high: float
    def __init__(self, ratio: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

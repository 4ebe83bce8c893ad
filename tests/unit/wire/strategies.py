"""Random messages, made from their declarations."""

from typing import Any

from hypothesis import strategies as st

from qbus.wire.declare import Field, Scalar, Struct, fields

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=3000),
}


PRIVATE_TAGS = 10_000
"""Tags from this one on are Qbus's own."""
_ANY_TAG = 2**32


def messages(cls: type[Struct], version: int, **scalars: st.SearchStrategy[Any]) -> Any:
    """Values of ``cls`` with all fields of ``version``; ``scalars`` replaces scalar strategies."""
    return _messages(cls, version, {**_SCALARS, **scalars}, _ANY_TAG)


def kafkas_messages(cls: type[Struct], version: int, **scalars: st.SearchStrategy[Any]) -> Any:
    """The same without Qbus's own fields."""
    return _messages(cls, version, {**_SCALARS, **scalars}, PRIVATE_TAGS)


def _messages(cls: type[Struct], version: int, known: dict[str, Any], tags: int) -> Any:
    return st.builds(
        cls,
        **{
            field.name: _values(field, version, known, tags)
            for field in fields(cls)
            if version in field.versions and (field.tag or 0) < tags
        },
    )


def _values(field: Field, version: int, known: dict[str, Any], tags: int) -> st.SearchStrategy[Any]:
    kind = field.kind
    item = known[kind.name] if isinstance(kind, Scalar) else _messages(kind, version, known, tags)
    value = st.lists(item, max_size=3) if field.is_array else item
    return st.none() | value if version in field.nullable else value

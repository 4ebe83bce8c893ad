"""Ids: random, and written as Kafka writes them."""

import pytest

from qbus.metadata import ids


def test_ids_differ_and_come_back() -> None:
    made = {ids.new_id() for _ in range(1000)}
    assert len(made) == 1000
    for identity in made:
        text = ids.encode_id(identity)
        assert len(text) == 22
        assert ids.decode_id(text) == identity


def test_an_id_is_never_zero_nor_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([bytes(16), b"\xf8" + bytes(15), b"\x01" + bytes(15)])  # 0xf8... is "-AAA..."
    monkeypatch.setattr(ids, "urandom", lambda _: next(drawn))
    assert ids.new_id() == b"\x01" + bytes(15)


def test_is_written_as_kafka_writes_it() -> None:
    assert ids.decode_id("vPeOCWypqUOSepEvx0cbog").hex() == "bcf78e096ca9a943927a912fc7471ba2"


@pytest.mark.parametrize("text", ["", "x", "A" * 21, "A" * 23, "A" * 22 + "==", "!" * 22, "ä" * 22])
def test_invalid_ids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        ids.decode_id(text)

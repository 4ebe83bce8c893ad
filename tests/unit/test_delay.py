"""What headers ask for, and what they must not."""

import pytest

from qbus.delay import BY_KEY, NO_TTL, Order, duration_text, more_than, parse_duration, read_order

NOW = 1_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1500", 1500),
        ("1500ms", 1500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("36h", 129_600_000),
        ("30d", 2_592_000_000),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "+1", "1.5s", "1 s", "1S", "1w", "1m30s", "٣s", "1e3", "ms1"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "9999999999999999999d"])
def test_durations_that_overflow(text: str) -> None:
    with pytest.raises(ValueError, match="too long"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("headers", "order"),
    [
        ({}, None),
        ({"other": "1", "qbus-other": "x"}, None),
        ({"qbus-ttl": "5s"}, None),
        ({"qbus-deliver-at": "5"}, Order(5)),
        ({"qbus-deliver-at": "4102444800000"}, Order(4_102_444_800_000)),
        ({"qbus-delay": "15m"}, Order(NOW + 900_000)),
        ({"qbus-delay": "1", "qbus-ttl": "2s", "x": "y"}, Order(NOW + 1, 2000)),
        ({"qbus-cancel": "77"}, Order(NOW, NO_TTL, 77, is_cancel=True)),
        ({"qbus-cancel": "key"}, Order(NOW, NO_TTL, BY_KEY, is_cancel=True)),
        ({"qbus-reschedule": "77", "qbus-delay": "1s"}, Order(NOW + 1000, NO_TTL, 77)),
        ({"qbus-reschedule": "0", "qbus-deliver-at": "9"}, Order(9, NO_TTL, 0)),
    ],
)
def test_what_headers_ask_for(headers: dict[str, str], order: Order | None) -> None:
    assert read_order([(name, text.encode()) for name, text in headers.items()], NOW) == order


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([("qbus-delay", b"soon")], "qbus-delay: 'soon' is no duration"),
        ([("qbus-delay", b"-5")], "no duration"),
        ([("qbus-delay", None)], "qbus-delay is null"),
        ([("qbus-delay", b"\xff")], "not readable"),
        ([("qbus-delay", b"9223372036854775807")], "qbus-delay is too long"),
        ([("qbus-deliver-at", b"tomorrow")], "milliseconds since 1970"),
        ([("qbus-deliver-at", b"-1")], "milliseconds since 1970"),
        ([("qbus-deliver-at", b"9223372036854775808")], "milliseconds since 1970"),
        ([("qbus-deliver-at", b"1"), ("qbus-delay", b"1")], "exclude each other"),
        ([("qbus-delay", b"1"), ("qbus-delay", b"1")], "given twice"),
        ([("qbus-delay", b"1"), ("qbus-ttl", b"x")], "qbus-ttl: 'x' is no duration"),
        ([("qbus-cancel", b"")], "'' is not an offset"),
        ([("qbus-cancel", b"-1")], "not an offset"),
        ([("qbus-cancel", b"Key")], "not an offset"),
        ([("qbus-cancel", b"99999999999999999999")], "not an offset"),
        ([("qbus-cancel", b"1"), ("qbus-delay", b"1")], "stands alone"),
        ([("qbus-cancel", b"1"), ("qbus-reschedule", b"1")], "stands alone"),
        ([("qbus-reschedule", b"1")], "needs qbus-deliver-at or qbus-delay"),
        ([("qbus-reschedule", b"1"), ("qbus-delay", b"1"), ("qbus-ttl", b"1")], "nothing else"),
        ([("qbus-reschedule", b"key"), ("qbus-delay", b"1")], "not an offset"),
    ],
)
def test_what_nobody_can_have_meant(headers: list[tuple[str, bytes | None]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_order(headers, NOW)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (999, "999ms"), (1000, "1s"), (1001, "1001ms"), (90_500, "90s"), (60_000, "1m")]
    + [(3_600_000, "1h"), (86_400_000, "1d"), (100_000_000, "27h"), (63_072_000_000, "730d")],
)
def test_a_duration_in_words(ms: int, text: str) -> None:
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("ahead", "most", "texts"),
    [
        (70_500, 60_000, ("70s", "1m")),
        (63_090_000_000, 63_072_000_000, ("63090000000ms", "63072000000ms")),
        (90_500, 90_000, ("90500ms", "90000ms")),
        (63_072_000_001, 63_072_000_000, ("63072000001ms", "63072000000ms")),
    ],
)
def test_two_durations_that_differ_are_told_apart(
    ahead: int, most: int, texts: tuple[str, str]
) -> None:
    assert more_than(ahead, most) == texts

"""Documents in which daemons tell of themselves: ASCII, and bounded."""

from qbus.clock import ManualClock
from qbus.service.status import StatusReporter, encode, fitting, short


def test_what_is_no_text_can_be_told() -> None:
    assert encode({"path": "\udcff ü"}) == b'{"path":"\\udcff \\u00fc"}'


def test_as_many_fit_as_there_is_room_for() -> None:
    documents = [{"n": number} for number in range(10)]
    found = list(fitting(documents, 30))
    assert found == documents[:3]
    assert len(encode({"all": found})) - len(encode({"all": []})) <= 30
    assert list(fitting(documents, 0)) == []


def test_very_long_errors_are_cut() -> None:
    assert short(None) is None
    assert short("as it is") == "as it is"
    assert short("x" * 10_000) == "x" * 500 + "..."


def test_a_report_names_the_process_and_bounds_its_lists() -> None:
    clock = ManualClock(5_000)
    reporter = StatusReporter(
        {"process": "p"}, lambda: {"version": 3}, lambda max_bytes: {"bound": max_bytes}, clock
    )
    report = reporter.report(100)
    assert (report["process"], report["configuration"], report["bound"]) == (
        "p",
        {"version": 3},
        100,
    )
    assert report["updated_ms"] == report["started_ms"] == 5_000
    assert reporter.report()["instance"] == report["instance"]

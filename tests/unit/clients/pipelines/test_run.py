"""Adding up what Spark reports."""

from typing import Any

from qbus.clients.pipelines.run import Tally
from qbus.clients.pipelines.submitted import summary


def report(batch: int, records: int = 10, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:0{batch}.000Z",
        "numInputRows": records,
        "processedRowsPerSecond": 5.0,
        "sources": [],
        **more,
    }


def test_batches_add_up_and_count_once() -> None:
    tally = Tally("q")
    tally.add([report(0), report(1)])
    tally.add([report(0), report(1), report(2)])
    assert (tally.batches, tally.records, tally.per_second) == (3, 30, 5.0)


def test_reports_that_are_given_again_without_the_first_ones_do_not_count_again() -> None:
    tally = Tally("q")
    tally.add([report(0), report(1)])
    tally.add([report(1), report(2), {**report(2), "timestamp": "2026-01-01T00:00:09.000Z"}])
    assert (tally.batches, tally.records) == (4, 40)


def test_an_idle_trigger_does_not_count_as_a_batch() -> None:
    tally = Tally("q")
    tally.add([report(0), report(1, records=0, processedRowsPerSecond="NaN")])
    assert (tally.batches, tally.per_second) == (1, 5.0)


def test_how_far_behind() -> None:
    source = {
        "endOffset": {"#ids": {"t": "x"}, "t": {"0": 4, "1": 2}},
        "latestOffset": '{"#ids": {"t": "x"}, "t": {"0": 10, "1": 2, "2": 7}}',
    }
    tally = Tally("q")
    tally.add([report(0, sources=[source])])
    assert tally.behind == 13


def test_unknown_values_are_not_shown() -> None:
    tally = Tally("q")
    tally.add([report(0, sources=[{"endOffset": "?", "latestOffset": None}])])
    tally.add([report(0, sources=[{"endOffset": {"logOffset": 1}, "latestOffset": {}}])])
    assert tally.behind is None
    assert summary(tally) == "q: 10 records in 1 batch, 5/s"


def test_malformed_and_late_lines_are_counted() -> None:
    tally = Tally("q")
    tally.add(
        [
            report(
                0,
                stateOperators=[{"numRowsDroppedByWatermark": 2}],
                observedMetrics={"malformed": {"malformed": 3}},
                eventTime={"watermark": "2026-01-01T00:00:00.000Z"},
            )
        ]
    )
    assert summary(tally).endswith(
        "complete up to 2026-01-01T00:00:00.000Z, 3 malformed, 2 groups too late"
    )

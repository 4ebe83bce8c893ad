"""Times as results show them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from qbus.clients.pipelines.times import of_micros, written


def test_a_time_with_a_zone() -> None:
    moment = datetime(2026, 3, 1, 14, 0, 0, 5000, tzinfo=timezone(timedelta(hours=2)))
    assert written(moment) == "2026-03-01T12:00:00.005Z"


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("hour", [0, 1])
def test_a_time_of_spark_even_where_the_clock_shows_it_twice(hour: int) -> None:
    utc = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
    spark = datetime.fromtimestamp(utc.timestamp())  # noqa: DTZ006 - so does Spark
    assert spark.hour == 2
    assert written(spark) == f"2026-10-25T0{hour}:30:00.000Z"


def test_microseconds_of_any_year() -> None:
    assert of_micros(-1000) == "1969-12-31T23:59:59.999Z"
    assert of_micros(10**18) == f"{10**18} us"

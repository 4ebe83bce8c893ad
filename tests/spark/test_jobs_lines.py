"""Statistics and abuse at their edges: on lines that are given, without a broker."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbus.clients.pipelines.config import ABUSE, STATS, Lines, Statistic
from qbus.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = {"source": {"topics": ["t"]}}
COLUMNS = "value binary, timestamp timestamp, topic string, partition int"


def records(spark: "SparkSession", values: Iterable[bytes | None], at: datetime) -> "DataFrame":
    rows = [(value, at, "t", 0) for value in values]
    return spark.createDataFrame(rows, COLUMNS)


def access(when: datetime, client: str = "10.0.0.1", status: int = 200, size: int = 1) -> bytes:
    time = when.strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'{client} - - [{time}] "GET /a?b HTTP/1.1" {status} {size} "-" "c"'.encode()


def from_json(fields: dict[str, str], **more: Any) -> Lines:
    lines = {"format": "json", "fields": fields, **more}
    return STATS.read({**SOURCE, "lines": lines, "statistic": [{"name": "s"}]}).lines


def is_malformed(frame: "DataFrame", lines: Lines) -> list[bool]:
    from qbus.clients.pipelines.parsing import MALFORMED, parsed

    return [row[0] for row in parsed(frame, lines).select(MALFORMED).collect()]


def test_lines_of_access_logs_are_recognized(spark: "SparkSession") -> None:
    good = access(NOON)
    lines = {
        good: False,
        good + b"\r\n": False,
        good + b' "more" 17': False,
        good.replace(b' "-" "c"', b""): False,
        good.replace(b"10.0.0.1", b"2001:db8::1"): False,
        good.replace(b" - - ", b" - a user "): False,
        good.replace(b"GET /a?b HTTP/1.1", b"-"): False,
        good.replace(b'"c"', rb'"\"quoted\" \\"'): False,
        good.replace(b'"c"', b'"\xff\xfe"'): False,
        good.replace(b'"c"', b'"c'): False,  # the Common Log Format, and more
        good.replace(b'1.1"', b"1.1"): True,
        good.replace(b" 200 ", b" 20 "): True,
        good.replace(b" 1 ", b" 1e3 "): True,
        good.replace(b"01/Jan", b"31/Feb"): True,
        good.replace(b"+0000", b""): True,
        good.replace(b"/a", b"/\0"): True,
        b"\0".join([b"a", b"-", b"-", b"01/Jan/2026:12:00:00 +0000", *[b""] * 5]): True,
        b'"' * 100_000: True,
        b"": True,
    }
    found = is_malformed(records(spark, [*lines, None], NOON), Lines())
    assert dict(zip(lines, found[:-1], strict=True)) == lines
    assert found[-1]


def test_a_line_far_ahead_of_its_record_is_malformed(spark: "SparkSession") -> None:
    values = [access(NOON + timedelta(hours=hours)) for hours in (23, 25)]
    assert is_malformed(records(spark, values, NOON), Lines()) == [False, True]
    assert is_malformed(records(spark, values, NOON), Lines(ahead=0)) == [False, False]
    without = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert is_malformed(records(spark, values, without), Lines()) == [False, False]


def test_lines_of_json_are_recognized(spark: "SparkSession") -> None:
    lines = {
        b'{"a": 1}': False,
        b'{"a": null}': False,
        b'{"b": 1}': False,
        b"{}": False,
        b'{"a": "x"}': True,
        b'{"a": 99999999999}': True,
        b'{"a": 1': True,
        b'[{"a": 1}]': True,
        b"1": True,
        b"null": True,
        b"": True,
    }
    found = is_malformed(records(spark, [*lines, None], NOON), from_json({"a": "int"}))
    assert dict(zip(lines, found[:-1], strict=True)) == lines
    assert found[-1]


def test_times_in_json(spark: "SparkSession") -> None:
    from qbus.clients.pipelines.parsing import parsed

    def moments(kind: str, form: str, *values: str) -> list[datetime | None]:
        lines = from_json({"at": kind}, time="at", time_format=form)
        rows = parsed(records(spark, [b'{"at": %b}' % one.encode() for one in values], NOON), lines)
        micros = rows.selectExpr("unix_micros(event_time)").collect()
        return [
            None if row[0] is None else epoch + timedelta(microseconds=row[0]) for row in micros
        ]

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    iso = moments("string", "iso", '"2026-01-01T12:00"', '"2026-01-01T13:00:00+01:00"', '"noon"')
    assert iso == [NOON, NOON, None]
    seconds = f"{NOON.timestamp():.0f}"
    later = NOON + timedelta(milliseconds=250)
    assert moments("double", "seconds", seconds, f"{seconds}.25", "null") == [NOON, later, None]
    assert moments("bigint", "milliseconds", f"{seconds}250") == [later]
    assert moments("string", "dd/MM/yyyy HH:mm", '"01/01/2026 12:00"', '"1/1/26"') == [NOON, None]
    with pytest.raises(ConfigError, match="at is a bigint: expected seconds or milliseconds"):
        moments("bigint", "iso", seconds)


def summary(spark: "SparkSession", values: list[bytes], **stated: Any) -> list[dict[str, Any]]:
    from qbus.clients.pipelines.parsing import parsed, well_formed
    from qbus.clients.pipelines.statistics import summarized

    lines = stated.pop("lines", Lines())
    stated = {**SOURCE, "statistic": [{"name": "s", **stated}]}
    if lines.format == "json":
        stated["lines"] = {"format": "json", "fields": dict(lines.fields)}
    (statistic,) = STATS.read(stated).statistics
    frame = well_formed(parsed(records(spark, values, NOON), lines))
    rows = summarized(frame, statistic)
    rows = rows.selectExpr(
        "*", "unix_millis(window_start) AS begin", "unix_millis(window_end) AS e"
    )
    return [row.asDict() for row in rows.orderBy("window_start").collect()]


def test_a_window_has_its_beginning_and_not_its_end(spark: "SparkSession") -> None:
    begin, end = NOON, NOON + timedelta(minutes=1)
    at = [begin, end - timedelta(seconds=1), end, begin - timedelta(seconds=1)]
    rows = summary(spark, [access(one) for one in at], window="1 minute")
    noon = int(NOON.timestamp() * 1000)
    assert [(row["begin"] - noon, row["e"] - noon, row["count"]) for row in rows] == [
        (-60_000, 0, 1),
        (0, 60_000, 2),
        (60_000, 120_000, 1),
    ]
    sliding = summary(spark, [access(NOON)], window="1 minute", slide="30 s")
    assert [row["begin"] - noon for row in sliding] == [-30_000, 0]


def test_null_fields_count_as_lines_but_not_as_numbers(spark: "SparkSession") -> None:
    values = [b'{"n": 1, "k": "a"}', b'{"n": 3, "k": "a"}', b'{"k": "a"}', b"{}"]
    stated = {"sum": ["n"], "mean": ["n"], "max": ["n"], "distinct": ["n"], "percentiles_of": ["n"]}
    lines = from_json({"n": "int", "k": "string"})
    rows = summary(spark, values, by=["k"], lines=lines, **stated)
    found = {row["k"]: row for row in rows}
    some, none = found["a"], found[None]
    assert (some["count"], some["n_sum"], some["n_mean"], some["n_distinct"]) == (3, 4, 2.0, 2)
    assert (some["n_p50"], some["n_p99"]) == (1, 3)
    assert (none["count"], none["n_sum"], none["n_max"], none["n_distinct"]) == (1, None, None, 0)
    assert none["n_p95"] is None


def test_percentiles_are_values_or_between_them(spark: "SparkSession") -> None:
    values = [access(NOON, size=size) for size in range(1, 101)]
    chosen = {"percentiles_of": ["bytes"], "percentiles": [0, 0.5, 0.999, 1]}
    (near,) = summary(spark, values, **chosen)
    (exact,) = summary(spark, values, exact_percentiles=True, **chosen)
    names = ["bytes_p0", "bytes_p50", "bytes_p99_9", "bytes_p100"]
    assert [near[name] for name in names] == [1, 50, 100, 100]
    assert [exact[name] for name in names] == pytest.approx([1, 50.5, 99.901, 100])


def test_rows_are_ranked_by_a_percentile_and_level_ones_by_name(spark: "SparkSession") -> None:
    sizes = {"a": 5, "b": 9, "c": 5}
    values = [access(NOON, client, size=size) for client, size in sizes.items()]
    chosen = {"by": ["address"], "percentiles_of": ["bytes"], "top": 2, "top_by": "bytes_p99"}
    rows = summary(spark, values, **chosen)
    assert sorted((row["rank"], row["address"]) for row in rows) == [(1, "b"), (2, "a")]


@pytest.mark.parametrize("key", ["sum", "mean", "percentiles_of"])
def test_arithmetic_needs_numeric_fields(spark: "SparkSession", key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} = 'agent': expected a field of numbers"):
        summary(spark, [], **{key: ["agent"]})
    with pytest.raises(ConfigError, match="where = 'colour = 1'"):
        summary(spark, [], where="colour = 1")


def streamed(spark: "SparkSession", path: Path, files: list[list[bytes]], **stated: Any) -> Any:
    """The rows of a statistic over a stream, a micro-batch a file, and what its tally says."""
    from qbus.clients.pipelines.line_jobs import observed
    from qbus.clients.pipelines.parsing import parsed, well_formed
    from qbus.clients.pipelines.progress import follow
    from qbus.clients.pipelines.run import Mode, PipelineRun
    from qbus.clients.pipelines.statistics import summarized

    from .jobs import Collected

    for values in files:
        records(spark, values, NOON).coalesce(1).write.mode("append").parquet(str(path / "in"))
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    lines = observed(parsed(stream.parquet(str(path / "in")), Lines()))
    statistic = Statistic(name="s", **stated)
    rows: list[Any] = []
    query = (
        summarized(well_formed(lines), statistic)
        .writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    (tally,) = follow([query], PipelineRun(Mode.ONCE, Collected()).watcher)
    return rows, tally


def test_windows_of_rare_lines_close_by_the_time_of_other_lines(
    spark: "SparkSession", tmp_path: Path
) -> None:
    values = [access(NOON, status=500), access(NOON + timedelta(minutes=30))]
    rows, _ = streamed(spark, tmp_path, [values], watermark=60_000, where="status >= 500")
    assert [row["count"] for row in rows] == [1]


def test_late_lines_are_dropped_and_counted(spark: "SparkSession", tmp_path: Path) -> None:
    files = [
        [access(NOON), access(NOON + timedelta(minutes=30))],
        [access(NOON + timedelta(minutes=31))],
        [access(NOON), b"no line"],
        [access(NOON + timedelta(minutes=60))],
    ]
    rows, tally = streamed(spark, tmp_path, files, watermark=60_000)
    assert [row["count"] for row in rows] == [1, 1, 1]
    assert (tally.late, tally.malformed, tally.records) == (1, 1, 6)


def alerted(spark: "SparkSession", values: list[bytes], **stated: Any) -> list[dict[str, Any]]:
    from qbus.clients.pipelines.abuse import alerts
    from qbus.clients.pipelines.parsing import parsed, well_formed

    config = ABUSE.read({**SOURCE, "window": "2 minutes", **stated})
    rows = alerts(well_formed(parsed(records(spark, values, NOON), config.lines)), config)
    rows = rows.selectExpr("*", "unix_millis(window_start) AS begin")
    return [row.asDict() for row in rows.orderBy("window_start", "client").collect()]


def test_a_clients_baseline_starts_when_it_was_first_seen(spark: "SparkSession") -> None:
    rates = {"steady": [10] * 20, "new": [0] * 15 + [10] * 5, "burst": [10] * 18 + [90] * 2}
    values = [
        access(NOON + timedelta(minutes=minute, seconds=number % 60), client)
        for client, counts in rates.items()
        for minute, count in enumerate(counts)
        for number in range(count)
    ]
    baseline = {"own_factor": 3, "history": "10 minutes", "requests": 1, "bytes": 10**9}
    rows = alerted(spark, values, baseline=baseline, repeat=True)

    def taken(client: str, begin: int, end: int) -> int:
        return sum(rates[client][max(0, begin) : max(0, end)])

    expected = []
    for begin in range(-1, 20):
        for client, counts in sorted(rates.items()):
            first = next(minute for minute, count in enumerate(counts) if count)
            now, past = taken(client, begin, begin + 2), taken(client, begin - 10, begin)
            seconds = (begin - max(first, begin - 10)) * 60
            if past and now > 3 * 120 * past / seconds:
                expected.append((begin, client, now, past / seconds))
    noon = int(NOON.timestamp() * 1000)
    found = [
        ((row["begin"] - noon) // 60_000, row["client"], row["requests"],
         row["own_requests_per_second"])
        for row in rows
    ]  # fmt: skip
    assert [row[1] for row in expected] == ["burst", "burst"]
    assert found == [(*row[:3], pytest.approx(row[3])) for row in expected]


def test_clients_with_many_bytes_do_not_hide_those_with_many_requests(
    spark: "SparkSession",
) -> None:
    large = [access(NOON, f"large-{number}", size=10**9) for number in range(20)]
    quick = [access(NOON, "quick", size=1)] * 50
    baseline = {"peers_factor": 10, "peers_percentile": 0.5, "requests": 1, "bytes": 1}
    for stated in ({"limits": {"requests": 40}}, {}):
        rows = alerted(spark, [*large, *quick], baseline=baseline, candidates=1, **stated)
        assert {row["client"] for row in rows} == {"quick"}


def test_exemptions_are_literal_but_for_wildcards(spark: "SparkSession") -> None:
    clients = ["10.0.0.1", "10x0.0.1", "a+b", "aab", "10.0.0.12"]
    values = [access(NOON, client) for client in clients]
    rows = alerted(spark, values, limits={"bytes": 0, "requests": 1}, exempt=["10.0.0.?", "a+*"])
    assert rows == []
    rows = alerted(spark, values * 2, limits={"requests": 1}, exempt=["10.0.0.?", "a+*"])
    assert {row["client"] for row in rows} == {"10x0.0.1", "aab", "10.0.0.12"}


def test_the_field_of_bytes_has_to_be_numeric(spark: "SparkSession") -> None:
    with pytest.raises(ConfigError, match="bytes = 'agent': expected a field of numbers"):
        alerted(spark, [], limits={"bytes": 1}, bytes="agent")

"""How far queries are behind, from what Spark tells of their progress."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from qbus.clients.spark.lag import LagListener, Lags, lag
from qbus.clients.spark.source.offsets import QueryOffsets
from qbus.clients.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def offset(*positions: int) -> str:
    marks = {TopicPartition("a", index): at for index, at in enumerate(positions)}
    return json.dumps(QueryOffsets("q", {"a": "id"}, marks).to_json())


def progress(*sources: tuple[Any, Any], name: str | None = "copy", run: str = "1") -> Any:
    listed = [SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources]
    told = SimpleNamespace(name=name, id="the id", runId=run, sources=listed)
    return SimpleNamespace(progress=told)


def test_lag_is_the_end_less_the_position() -> None:
    assert lag(offset(5), offset(8, 3)) == {A0: 3, A1: 3}
    assert lag(offset(9), offset(8)) == {A0: 0}


@pytest.mark.parametrize("other", [None, "", "5", "[]", '{"a": {"0": 1}}', '"log offset"'])
def test_other_sources_are_not_looked_at(other: Any) -> None:
    assert lag(other, offset(8)) == {}
    assert lag(offset(8), other) == {}


def test_the_lags_of_running_queries_are_kept() -> None:
    listener = LagListener()
    listener.onQueryProgress(progress((offset(5), offset(8)), (None, None)))
    listener.onQueryProgress(progress((offset(5), offset(6)), name=None, run="2"))
    listener.onQueryProgress(progress((None, None), name="rate", run="3"))
    assert listener.lags == {"copy": {A0: 3}, "the id": {A0: 1}}
    (family,) = listener.collect()
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"query": "copy", "topic": "a", "partition": "0"}, 3),
        ({"query": "the id", "topic": "a", "partition": "0"}, 1),
    ]
    ended: Any = SimpleNamespace(runId="1")
    listener.onQueryTerminated(ended)
    assert listener.lags == {"the id": {A0: 1}}


def test_lags_are_published_and_a_failure_of_that_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    published: list[tuple[str, Lags]] = []

    def publish(query: str, lags: Lags) -> None:
        published.append((query, lags))
        raise RuntimeError("no room")

    listener = LagListener(publish)
    listener.onQueryProgress(progress((offset(5), offset(8))))
    assert published == [("copy", {A0: 3})]
    assert "no room" in caplog.text
    assert listener.lags == {"copy": {A0: 3}}

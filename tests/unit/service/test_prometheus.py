"""Metrics as Prometheus reads them."""

import gzip
import socket
import urllib.request
from collections.abc import Iterable

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from qbus.prometheus import serve
from tests.support.ports import free_port


class Numbers:
    """Two gauges."""

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("first", "The first.", value=1)
        yield GaugeMetricFamily("second", "The second.", value=2)


def fetched(port: int, path: str = "/metrics", **headers: str) -> tuple[bytes, str, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=named)
    with urllib.request.urlopen(request, timeout=5) as answer:
        kind = str(answer.headers["Content-Type"])
        return answer.read(), kind, str(answer.headers["Content-Encoding"])


@pytest.fixture
def port() -> Iterable[int]:
    found = free_port()
    stop = serve(Numbers(), "127.0.0.1", found, of_process=False)
    yield found
    stop()


def test_the_text_format(port: int) -> None:
    body, kind, _ = fetched(port)
    assert kind.startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert names == {"first", "second"}


def test_open_metrics_if_that_is_wanted(port: int) -> None:
    body, kind, _ = fetched(port, Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_compressed_if_that_is_wanted(port: int) -> None:
    body, _, coding = fetched(port, Accept_Encoding="deflate, gzip;q=1.0")
    assert coding == "gzip"
    assert b"second 2" in gzip.decompress(body)
    assert fetched(port, Accept_Encoding="gzip;q=0")[2] == "None"


def test_a_browser_finds_no_icon(port: int) -> None:
    assert fetched(port, "/favicon.ico")[0] == b""


def test_a_query_without_end_is_refused(port: int) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        fetched(port, "/?" + "&".join("name[]=x" for _ in range(300)))


def test_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot serve metrics on 127.0.0.1:{port}"):
            serve(Numbers(), "127.0.0.1", port)


def test_of_this_process_too() -> None:
    port = free_port()
    stop = serve(Numbers(), "127.0.0.1", port)
    assert b"process_resident_memory_bytes" in fetched(port)[0]
    some = fetched(port, "/metrics?name[]=process_open_fds")[0]
    assert b"process_open_fds" in some
    assert b"process_resident_memory_bytes" not in some
    stop()

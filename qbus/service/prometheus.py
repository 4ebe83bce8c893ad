"""Metrics for Prometheus, over HTTP."""

import gzip
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from .http import Decide, PageServer, Request, Response, listen

if TYPE_CHECKING:
    import ssl

    from prometheus_client.core import Metric

_MOST_PARAMETERS = 200


class Collector(Protocol):
    """A source of metrics."""

    def collect(self) -> Iterable["Metric"]:
        """Return the Prometheus families; called from other threads."""


class PageSecurity(NamedTuple):
    """Who may read metrics, and how they are encrypted.

    ``tls`` makes the context of a connection; None: nothing is encrypted. ``decide`` tells who may
    read them, see :data:`.http.Decide`; None: anybody. ``inner_secret``: what another process of
    this program says that asks for others; empty: none does.
    """

    tls: "Callable[[], ssl.SSLContext] | None" = None
    decide: Decide | None = None
    inner_secret: str = ""


_OPEN = PageSecurity()


def serve(
    metrics: Collector,
    host: str,
    port: int,
    *,
    of_process: bool = True,
    security: PageSecurity = _OPEN,
) -> Callable[[], None]:
    """Serve ``metrics`` over HTTP from a thread; return the function that stops it.

    ``of_process``: with what this process takes of processor and memory.

    Raises:
        OSError: the address cannot be listened on; the message names it.
    """
    from prometheus_client import (  # noqa: PLC0415 - only where metrics are served
        CollectorRegistry,
        GCCollector,
        PlatformCollector,
        ProcessCollector,
    )

    registry = CollectorRegistry()
    registry.register(metrics)
    if of_process:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
    try:
        sock = listen(host, port)
    except OSError as error:
        message = f"cannot serve metrics on {host}:{port}: {error.strerror}"
        raise OSError(error.errno, message) from error
    server = PageServer(
        sock,
        lambda request: render(registry, request),
        tls=security.tls,
        decide=security.decide,
        inner_secret=security.inner_secret,
    )
    server.start()
    return server.stop


def render(registry: Any, request: Request) -> Response:
    """The page in the form that a client wants: any path, as Prometheus's own library has it."""
    from prometheus_client.exposition import (  # noqa: PLC0415 - only where metrics are served
        choose_encoder,
    )

    try:
        target = urlsplit(request.target)
        wanted = parse_qs(target.query, max_num_fields=_MOST_PARAMETERS).get("name[]")
    except ValueError:
        return Response(HTTPStatus.BAD_REQUEST)
    if target.path == "/favicon.ico":
        return Response(HTTPStatus.OK)
    try:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
    except TypeError:  # it cannot compare a version that is no number
        encode, kind = choose_encoder("")
    body = encode(_Only(registry, frozenset(wanted)) if wanted else registry)
    headers = {"Content-Type": kind}
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        body = gzip.compress(body, 6)
        headers |= {"Content-Encoding": "gzip"}
    return Response(HTTPStatus.OK, body, {**headers, "Vary": "Accept, Accept-Encoding"})


class _Only:
    """Some samples of a registry, by their names."""

    def __init__(self, registry: Any, names: frozenset[str]) -> None:
        self._registry = registry
        self._names = names

    def collect(self) -> Iterable["Metric"]:
        from prometheus_client.core import Metric  # noqa: PLC0415 - as above

        for family in self._registry.collect():
            samples = [sample for sample in family.samples if sample.name in self._names]
            if samples:
                found = Metric(family.name, family.documentation, family.type)
                found.samples = samples
                yield found


def _takes_gzip(accepted: str) -> bool:
    codings = [one.partition(";") for one in accepted.lower().split(",")]
    return any(
        coding.strip() == "gzip" and rest.replace(" ", "") not in {"q=0", "q=0.0"}
        for coding, _, rest in codings
    )

"""The metrics of all workers as one: each sample with the node id of its broker."""

import asyncio
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from qbus.service.http import Caller, asking

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_PATIENCE_S = 5.0
_OPENER = build_opener(ProxyHandler({}))  # whatever proxies the environment names


@dataclass(frozen=True)
class WorkerState:
    """A worker as the supervisor sees it; its metrics are at ``port`` of the loopback."""

    node_id: int
    port: int
    restarts: int

    def encode(self) -> bytes:
        """For a message."""
        return json.dumps([self.node_id, self.port, self.restarts]).encode()

    @classmethod
    def decode(cls, data: bytes) -> "WorkerState":
        """What was encoded."""
        return cls(*json.loads(data))


class WorkersMetrics:
    """Asks the workers that there are, when it is asked itself."""

    def __init__(self, secret: str = "") -> None:
        """``secret``: by which workers know that this asks."""
        self._secret = secret
        self.workers: dict[int, WorkerState] = {}

    def collect(self) -> Iterable["Metric"]:
        """The Prometheus families, as a collector gives them."""
        from prometheus_client.core import (  # noqa: PLC0415 - only where metrics are served
            CounterMetricFamily,
            GaugeMetricFamily,
            Metric,
        )

        ask = partial(_ask, self._headers())
        workers = sorted(self.workers.values(), key=lambda worker: worker.node_id)
        up = GaugeMetricFamily("qbus_worker_up", "1 if the broker answers.", labels=["broker"])
        restarts = CounterMetricFamily(
            "qbus_worker_restarts", "How often it was started again.", labels=["broker"]
        )
        families: dict[str, Metric] = {}
        with ThreadPoolExecutor(max(len(workers), 1)) as pool:
            for worker, answer in zip(workers, pool.map(ask, workers), strict=True):
                broker = str(worker.node_id)
                up.add_metric([broker], answer is not None)
                restarts.add_metric([broker], worker.restarts)
                for family in answer or ():
                    merged = families.setdefault(
                        family.name, Metric(family.name, family.documentation, family.type)
                    )
                    for sample in family.samples:
                        labels = {**sample.labels, "broker": broker}
                        merged.samples.append(sample._replace(labels=labels))
        yield up
        yield restarts
        yield from families.values()

    async def decide(self, _: Caller) -> HTTPStatus:
        """Whether a caller may read metrics: as one of the workers says."""
        headers = self._headers()
        for worker in sorted(self.workers.values(), key=lambda worker: worker.node_id):
            status = await asyncio.to_thread(_decide, headers, worker)
            if status is not None:
                return status
        return HTTPStatus.SERVICE_UNAVAILABLE

    def _headers(self) -> dict[str, str]:
        """On whose behalf workers are asked."""
        who = asking.get()
        return who.headers(self._secret) if who is not None and self._secret else {}


def _decide(headers: dict[str, str], worker: WorkerState) -> HTTPStatus | None:
    """What a worker's page answers to whoever says that; None: it does not answer."""
    try:
        with _OPENER.open(_request(headers, worker, "favicon.ico"), timeout=_PATIENCE_S) as answer:
            return HTTPStatus(answer.status)
    except HTTPError as error:
        with error:
            return HTTPStatus(error.code)
    except (OSError, HTTPException, ValueError):
        return None


def _request(headers: dict[str, str], worker: WorkerState, path: str) -> Request:
    return Request(f"http://127.0.0.1:{worker.port}/{path}", headers=headers)


def _ask(headers: dict[str, str], worker: WorkerState) -> "list[Metric] | None":
    """The families of a worker; None: it does not answer, or not as one."""
    from prometheus_client.parser import (  # noqa: PLC0415 - only where metrics are served
        text_string_to_metric_families,
    )

    try:
        with _OPENER.open(_request(headers, worker, "metrics"), timeout=_PATIENCE_S) as answer:
            return list(text_string_to_metric_families(answer.read().decode()))
    except (OSError, HTTPException, ValueError):
        return None

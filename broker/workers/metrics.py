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

from qbus.service.http import FORWARDED, Caller, authorization

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

    def __init__(self) -> None:
        self.workers: dict[int, WorkerState] = {}

    def collect(self) -> Iterable["Metric"]:
        """The Prometheus families, as a collector gives them."""
        from prometheus_client.core import (  # noqa: PLC0415 - only where metrics are served
            CounterMetricFamily,
            GaugeMetricFamily,
            Metric,
        )

        ask = partial(_ask, authorization.get())
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
        header = authorization.get()
        for worker in sorted(self.workers.values(), key=lambda worker: worker.node_id):
            status = await asyncio.to_thread(_decide, header, worker)
            if status is not None:
                return status
        return HTTPStatus.SERVICE_UNAVAILABLE


def _decide(header: tuple[str, str], worker: WorkerState) -> HTTPStatus | None:
    """What a worker's page answers to whoever says that; None: it does not answer."""
    try:
        with _OPENER.open(_request(header, worker, "favicon.ico"), timeout=_PATIENCE_S) as answer:
            return HTTPStatus(answer.status)
    except HTTPError as error:
        with error:
            return HTTPStatus(error.code)
    except (OSError, HTTPException, ValueError):
        return None


def _request(header: tuple[str, str], worker: WorkerState, path: str) -> Request:
    credentials, host = header
    headers = {"Authorization": credentials, FORWARDED: host} if host else {}
    return Request(f"http://127.0.0.1:{worker.port}/{path}", headers=headers)


def _ask(header: tuple[str, str], worker: WorkerState) -> "list[Metric] | None":
    """The families of a worker; None: it does not answer, or not as one."""
    from prometheus_client.parser import (  # noqa: PLC0415 - only where metrics are served
        text_string_to_metric_families,
    )

    try:
        with _OPENER.open(_request(header, worker, "metrics"), timeout=_PATIENCE_S) as answer:
            return list(text_string_to_metric_families(answer.read().decode()))
    except (OSError, HTTPException, ValueError):
        return None

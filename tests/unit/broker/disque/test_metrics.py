"""The metrics of the clients of jobs."""

import asyncio

from qbus.broker.disque.metrics import register_metrics

from .jobs import Jobs


async def test_clients_and_jobs_are_counted(jobs: Jobs) -> None:
    metrics = jobs.plane.metrics
    register_metrics(metrics, jobs.service)
    await jobs.add()
    await jobs.bodies()
    waiting = jobs.begin("GETJOB FROM q other")
    await asyncio.sleep(0)
    assert metrics.gauges["jobs_blocked_clients"][1]() == 2
    assert metrics.gauges["jobs_clients"][1]() == 0
    assert metrics.counters["jobs_added"][1]() == 1
    waiting.cancel()
    jobs.service.authentication.password = b"secret"
    await jobs.ask("AUTH wrong")
    assert metrics.counters["jobs_authentication_failures"][1]() == 1

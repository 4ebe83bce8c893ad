"""What Prometheus reads of an agent."""

from prometheus_client import CollectorRegistry

from qbus.agent.config import AgentConfig
from qbus.agent.control import configured_agent
from qbus.agent.metrics import AgentMetrics
from qbus.agent.status import AgentStatus, FileState, FileStatus, SpoolStatus


async def apply(_: AgentConfig) -> None:
    """Take anything."""


def file(path: str, state: FileState, size: int) -> FileStatus:
    return FileStatus(
        path=path, topic="t", inode=1, state=state, position=0, read=0, size=size, lag_seconds=2.0
    )


def test_all_files_together_are_measured() -> None:
    status = AgentStatus(
        files=(file("/a", FileState.READING, 5), file("/b", FileState.FAILED, 7)),
        spools=(SpoolStatus(directory="/s", waiting_bytes=3, delivered_records=2, damaged=1),),
        records=11,
        bytes=110,
        refused=4,
        truncations=5,
        error="away",
    )
    configured = configured_agent(apply)
    configured.missing("there is none")
    registry = CollectorRegistry()
    registry.register(AgentMetrics(lambda: status, configured))
    expected = {
        "qbus_agent_lag_bytes": 12,
        "qbus_agent_lag_seconds": 2.0,
        "qbus_agent_records_total": 11,
        "qbus_agent_bytes_total": 110,
        "qbus_agent_refused_records_total": 4,
        "qbus_agent_truncations_total": 5,
        "qbus_agent_spool_bytes": 3,
        "qbus_agent_spool_damaged_files": 1,
        "qbus_agent_delivery_failing": 1,
        "qbus_agent_configuration_refused": 1,
    }
    assert {name: registry.get_sample_value(name) for name in expected} == expected
    assert registry.get_sample_value("qbus_agent_files", {"state": "failed"}) == 1
    assert registry.get_sample_value("qbus_agent_spool_records_total", {"directory": "/s"}) == 2


def test_an_agent_without_files_has_metrics() -> None:
    registry = CollectorRegistry()
    registry.register(AgentMetrics(AgentStatus, configured_agent(apply)))
    assert registry.get_sample_value("qbus_agent_lag_seconds") == 0
    assert registry.get_sample_value("qbus_agent_delivery_failing") == 0

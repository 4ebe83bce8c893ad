"""The target is a Qbus that takes mirrors, another cluster, or the source itself."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.clients.admin.types import NewTopic
from qbus.clients.errors import PartialFailure
from qbus.clients.mirror import checks as module
from qbus.clients.mirror.checks import check_apart, takes_mirrors
from qbus.clients.mirror.config import LinkConfig
from qbus.errors import ApiError, ConfigError, ErrorCode

CONFIG = LinkConfig("a", "b", "h:1", "h:2", (".*",))
REFUSED = ApiError(ErrorCode.INVALID_CONFIG, "no")


class FakeCluster:
    """Refuses topics as a kind of broker does; ``refuses`` takes the IDC that one is to mirror."""

    def __init__(self, refuses: Any = lambda _: None, cluster_id: str = "x") -> None:
        self._refuses = refuses
        self._cluster_id = cluster_id

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool
    ) -> dict[str, None]:
        assert validate_only
        outcomes = {one.name: self._refuses(one.config["qbus.mirror.source"]) for one in topics}
        errors = {name: error for name, error in outcomes.items() if error is not None}
        if errors:
            raise PartialFailure(errors, {n: None for n in outcomes if n not in errors})
        return outcomes

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id=self._cluster_id)


@pytest.fixture(autouse=True)
def _over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Admin", SimpleNamespace(over=lambda cluster: cluster))


async def takes(cluster: FakeCluster) -> bool:
    return await takes_mirrors(cluster, "a")  # type: ignore[arg-type]


async def test_a_qbus_accepts_a_mirror_and_refuses_an_impossible_name() -> None:
    assert await takes(FakeCluster(lambda idc: None if idc == "a" else REFUSED))


async def test_kafka_refuses_mirrors() -> None:
    assert not await takes(FakeCluster(lambda _: REFUSED))


async def test_a_broker_that_takes_any_configuration_is_no_qbus() -> None:
    assert not await takes(FakeCluster(lambda _: None))


async def test_a_refused_request_is_raised() -> None:
    refusal = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not you")
    with pytest.raises(ApiError, match="not you"):
        await takes(FakeCluster(lambda _: refusal))


async def test_source_and_target_are_told_apart_by_the_id_of_the_cluster() -> None:
    one, same, other = (FakeCluster(cluster_id=name) for name in ("x", "x", "y"))
    await check_apart(CONFIG, one, other)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a at h:1 and b at h:2 are one cluster"):
        await check_apart(CONFIG, one, same)  # type: ignore[arg-type]


async def test_clusters_without_an_id_are_not_compared() -> None:
    await check_apart(CONFIG, FakeCluster(cluster_id=""), FakeCluster(cluster_id=""))  # type: ignore[arg-type]

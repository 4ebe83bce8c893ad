"""The configuration in force: replaced whole, or not at all."""

import pytest

from qbus.agent.config import AgentConfig
from qbus.agent.control import configured_agent
from qbus.service.control import Configured, Origin

from .stores import BAD, GOOD, OTHER, Applied

NODE = Origin("/agents/a/config", 3)


@pytest.fixture
def applied() -> Applied:
    return Applied()


@pytest.fixture
def configured(applied: Applied) -> Configured[AgentConfig]:
    return configured_agent(applied)


async def test_a_good_one_is_applied(configured: Configured[AgentConfig], applied: Applied) -> None:
    assert await configured.accept(GOOD, NODE)
    assert applied.paths == ["/a.log"]
    assert configured.document() == {
        "in_force": "/agents/a/config",
        "version": 3,
        "refused": None,
        "refused_version": None,
        "reason": None,
    }


async def test_a_bad_one_is_refused_and_the_old_one_stays(
    configured: Configured[AgentConfig], applied: Applied
) -> None:
    await configured.accept(GOOD, NODE)
    assert not await configured.accept(BAD, Origin(NODE.path, 4))
    assert applied.paths == ["/a.log"]
    document = configured.document()
    assert (document["version"], document["refused_version"]) == (3, 4)
    assert document["reason"] == "source[1].pahts: no such field; did you mean paths?"


async def test_a_good_one_after_a_bad_one_clears_the_reason(
    configured: Configured[AgentConfig], applied: Applied
) -> None:
    await configured.accept(BAD, NODE)
    await configured.accept(GOOD, NODE)
    assert configured.document()["reason"] is None


async def test_going_back_to_what_is_in_force_applies_nothing_but_clears_the_reason(
    configured: Configured[AgentConfig], applied: Applied
) -> None:
    for text in (GOOD, BAD, GOOD):
        await configured.accept(text, NODE)
    assert applied.paths == ["/a.log"]
    assert configured.reason is None


async def test_what_fails_halfway_is_taken_back(
    configured: Configured[AgentConfig], applied: Applied
) -> None:
    await configured.accept(GOOD, NODE)
    applied.failures = [PermissionError(13, "Permission denied", "/x")]
    assert not await configured.accept(OTHER, Origin(NODE.path, 4))
    assert applied.paths == ["/a.log", "/a.log"]
    assert "Permission denied" in str(configured.reason)


async def test_one_that_is_missing_leaves_the_old_one_in_force(
    configured: Configured[AgentConfig],
) -> None:
    await configured.accept(GOOD, NODE)
    configured.missing("there is no configuration")
    document = configured.document()
    assert (document["in_force"], document["reason"]) == (NODE.path, "there is no configuration")

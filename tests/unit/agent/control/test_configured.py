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
    return configured_agent(applied, environ={"DC": "north"})


async def test_a_good_one_is_applied(configured: Configured[AgentConfig], applied: Applied) -> None:
    assert await configured.take(GOOD, NODE)
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
    await configured.take(GOOD, NODE)
    assert not await configured.take(BAD, Origin(NODE.path, 4))
    assert applied.paths == ["/a.log"]
    document = configured.document()
    assert (document["version"], document["refused_version"]) == (3, 4)
    assert document["reason"] == "source[1].pahts: no such field; did you mean paths?"


async def test_a_good_one_after_a_bad_one_clears_the_reason(
    configured: Configured[AgentConfig], applied: Applied
) -> None:
    await configured.take(BAD, NODE)
    await configured.take(GOOD, NODE)
    assert configured.document()["reason"] is None


async def test_going_back_to_what_is_in_force_applies_nothing_but_clears_the_reason(
    configured: Configured[AgentConfig], applied: Applied
) -> None:
    for text in (GOOD, BAD, GOOD):
        await configured.take(text, NODE)
    assert applied.paths == ["/a.log"]
    assert configured.reason is None


async def test_what_fails_halfway_is_taken_back(
    configured: Configured[AgentConfig], applied: Applied
) -> None:
    await configured.take(GOOD, NODE)
    applied.failures = [PermissionError(13, "Permission denied", "/x")]
    assert not await configured.take(OTHER, Origin(NODE.path, 4))
    assert applied.paths == ["/a.log", "/a.log"]
    assert "Permission denied" in str(configured.reason)


async def test_a_variable_that_is_not_set_here_is_a_refusal(
    configured: Configured[AgentConfig],
) -> None:
    assert await configured.take(GOOD + b'key = "{env.DC}"', NODE)
    assert not await configured.take(GOOD + b'key = "{env.ROLE}"', NODE)
    assert configured.reason == (
        "source[1].key = '{env.ROLE}': expected the environment variable ROLE,"
        " which is not set here"
    )


async def test_one_that_is_missing_leaves_the_old_one_in_force(
    configured: Configured[AgentConfig],
) -> None:
    await configured.take(GOOD, NODE)
    configured.miss("there is no configuration")
    document = configured.document()
    assert (document["in_force"], document["reason"]) == (NODE.path, "there is no configuration")

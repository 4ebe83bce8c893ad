"""Changing configurations."""

import pytest

from qbus.clients import Admin, ConfigKind, PartialFailure
from qbus.errors import ConfigError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from qbus.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from tests.support.fake_broker import FakeBroker


async def test_every_kind_of_change() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        broker.handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda _: (
            IncrementalAlterConfigsResponse()
        )
        await admin.alter_config(
            ConfigKind.GROUP,
            "g",
            set={"a": "1"},
            unset=["b"],
            append={"c": "2"},
            subtract={"d": "3"},
            validate_only=True,
        )
        (request,) = broker.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        (resource,) = request.resources
        assert request.validate_only
        assert (resource.resource_type, resource.resource_name) == (32, "g")
        changes = {c.name: (c.config_operation, c.value) for c in resource.configs}
        assert changes == {"a": (0, "1"), "b": (1, None), "c": (2, "2"), "d": (3, "3")}


@pytest.mark.parametrize("kind", [ConfigKind.BROKER, ConfigKind.BROKER_LOGGER])
async def test_a_broker_is_named_by_its_number(kind: ConfigKind) -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(ConfigError, match="'one'"):
            await admin.describe_config(kind, "one")
        assert broker.requests == []


async def test_several_configurations_some_of_which_are_refused() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:

        def answer(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
            (resource,) = request.resources
            is_there = resource.resource_name == "t"
            code = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return DescribeConfigsResponse(results=[DescribeConfigsResult(error_code=code)])

        broker.handlers[ApiKey.DESCRIBE_CONFIGS] = answer
        resources = [(ConfigKind.TOPIC, "t"), (ConfigKind.TOPIC, "missing")]
        with pytest.raises(PartialFailure, match="topic missing") as caught:
            await admin.describe_configs(resources)
        assert caught.value.results == {resources[0]: []}

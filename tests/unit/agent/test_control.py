"""An agent's configurations are checked against its machine."""

from qbus.agent.config import AgentConfig
from qbus.agent.control import configured_agent
from qbus.service.control import Origin

NODE = Origin("/agents/a/config", 3)
GOOD = b'bootstrap = "h:9"\ntopic = "t"\n[[source]]\npaths = ["/a.log"]\n'


async def apply(_: AgentConfig) -> None:
    """Accept anything."""


async def test_a_missing_environment_variable_is_refused() -> None:
    configured = configured_agent(apply, environ={"DC": "north"})
    assert await configured.accept(GOOD + b'key = "{env.DC}"', NODE)
    assert not await configured.accept(GOOD + b'key = "{env.ROLE}"', NODE)
    assert configured.reason == (
        "source[1].key = '{env.ROLE}': expected the environment variable ROLE,"
        " which is not set here"
    )

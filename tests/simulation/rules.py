"""The configuration of a simulated cluster, and the bugs that are planted in it."""

from typing import NamedTuple

from qbus.broker.metadata.partition_states import Policy, policy

REPLICAS = (1, 2, 3)


class Bugs(NamedTuple):
    """Known bugs of replicated logs, each of which the simulation must find."""

    truncates_to_high_watermark: bool = False
    """KIP-101: a follower truncates its log to its high watermark."""
    ignores_the_epoch_of_the_answer: bool = False
    """KIP-279: a follower that lacks the leader's epoch truncates by the offset alone."""
    ignores_broker_epochs: bool = False
    """KIP-903: a replica enters the ISR for records that it had before it restarted."""
    trusts_replicas_after_power_cuts: bool = False
    """KIP-966: the last replica in sync comes back without its records and leads."""
    acknowledges_alone: bool = False
    """The high watermark advances while other replicas are eligible."""


class Rules(NamedTuple):
    """``is_durable``: replicas acknowledge from stable storage, as with ``durability=fsync``."""

    is_durable: bool = True
    min_isr: int = 2
    max_lag: float = 2.0
    bugs: Bugs = Bugs()

    @property
    def wanted(self) -> Policy:
        """The policy of the topic."""
        return policy(self.min_isr, len(REPLICAS), is_durable=self.is_durable)

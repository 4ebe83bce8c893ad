"""How a simulated cluster is set up, and which mistakes it makes on purpose."""

from typing import NamedTuple

from qbus.broker.metadata.partition_states import Policy, policy

REPLICAS = (1, 2, 3)


class Bugs(NamedTuple):
    """Known mistakes of replicated logs, each of which the simulation has to find."""

    truncates_to_high_watermark: bool = False
    """KIP-101: a follower cuts its log to what it knows of the high watermark."""
    ignores_the_epoch_of_the_answer: bool = False
    """KIP-279: a follower that lacks the leader's epoch cuts by the offset alone."""
    adds_whoever_asked: bool = False
    """KIP-903: a replica is taken in sync for what it had before it was started anew."""
    keeps_whoever_comes_back: bool = False
    """KIP-966: the last replica in sync comes back without its records, and leads."""
    acknowledges_alone: bool = False
    """The high watermark moves while others are eligible."""


class Rules(NamedTuple):
    """``is_durable``: replicas acknowledge from stable storage, as with ``durability=fsync``."""

    is_durable: bool = True
    min_isr: int = 2
    max_lag: float = 2.0
    bugs: Bugs = Bugs()

    @property
    def wanted(self) -> Policy:
        """What the topic asks for."""
        return policy(self.min_isr, len(REPLICAS), is_durable=self.is_durable)

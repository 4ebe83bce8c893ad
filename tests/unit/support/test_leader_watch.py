"""From when to when a leader may have changed."""

import time
from typing import cast

from tests.support.cluster_view import View
from tests.support.leader_watch import LeaderWatch
from tests.support.waiting import wait_until


class Brokers:
    """Tells what is to be told."""

    def __init__(self) -> None:
        self.answers: list[dict[int, tuple[int, int]]] = [{0: (1, 5)}, {0: (1, 5)}]
        self.asked = 0

    def epochs(self, topic: str) -> list[dict[int, tuple[int, int]]]:
        assert topic == "t"
        self.asked += 1
        return self.answers

    def be_asked(self) -> None:
        count = self.asked
        wait_until(lambda: self.asked > count + 1, "the brokers to be asked")


def test_a_leader_may_change_between_the_times_at_which_all_tell_the_same() -> None:
    brokers = Brokers()
    with LeaderWatch(cast("View", brokers), "t") as watch:
        brokers.be_asked()
        before = time.monotonic_ns()
        brokers.answers = [{0: (2, 6)}, {0: (1, 5)}]
        brokers.be_asked()
        assert watch.breaks()[-1][0] < before
        brokers.answers = [{0: (2, 6)}, {0: (2, 6)}]
        brokers.be_asked()
        after = time.monotonic_ns()
        brokers.be_asked()
        assert any(begin < before and end > after - 10**9 for begin, end in watch.breaks())
        assert not watch.breaks()[-1][0] < before - 10**9

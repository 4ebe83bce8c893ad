"""The broker's memory for requests that are not whole yet."""

from qbus.broker.net.memory_budget import MemoryBudget


class Holder:
    """Somebody who wants ``count`` bytes and waits for them."""

    def __init__(self, budget: MemoryBudget, count: int) -> None:
        self.budget = budget
        self.count = count
        self.granted = False
        self.asked = 0

    def ask(self) -> bool:
        self.asked += 1
        self.granted = self.budget.try_acquire(self.count, self)
        if not self.granted:
            self.budget.wait(self.ask)
        return self.granted

    def finish(self) -> None:
        self.granted = False
        self.budget.release(self.count)
        self.budget.finished(self)


def test_what_fits_is_granted() -> None:
    budget = MemoryBudget(100)
    assert budget.try_acquire(60, "a")
    assert budget.try_acquire(40, "b")
    assert budget.used == 100


def test_one_at_a_time_may_go_over_the_limit() -> None:
    budget = MemoryBudget(100)
    budget.force(100)
    first, second = Holder(budget, 50), Holder(budget, 50)
    assert first.ask()
    assert not second.ask()
    assert budget.used == 150
    first.finish()
    assert second.granted


def test_the_waiting_are_served_in_order() -> None:
    budget = MemoryBudget(100)
    holders = [Holder(budget, 80) for _ in range(4)]
    assert [holder.ask() for holder in holders] == [True, True, False, False]
    holders[0].finish()
    assert [holder.granted for holder in holders] == [False, True, False, False]
    holders[1].finish()
    assert [holder.granted for holder in holders] == [False, False, True, True]


def test_waking_somebody_who_must_wait_again_ends() -> None:
    budget = MemoryBudget(100)
    privileged, greedy = Holder(budget, 500), Holder(budget, 500)
    assert privileged.ask()
    assert not greedy.ask()
    budget.release(450)
    assert not greedy.granted
    assert budget.waiting == 1
    assert greedy.asked == 2


def test_whoever_is_gone_is_not_called() -> None:
    budget = MemoryBudget(10)
    first, second = Holder(budget, 20), Holder(budget, 20)
    first.ask()
    second.ask()
    budget.forget(second.ask)
    first.finish()
    assert second.asked == 1
    assert budget.waiting == 0

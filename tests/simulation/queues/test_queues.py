"""No sequence of faults loses a record of a queue, or gives it to two; planted bugs do."""

import os

import pytest

from qbus.broker.queues.fold import GroupProgress

from .checks import Checks, ViolationError
from .cluster import Bugs, simulate

SEEDS = 250
NIGHTLY_SEEDS = os.environ.get("QBUS_SEEDS", f"{SEEDS}-20249")
"""The first and the last seed of a night: ``QBUS_SEEDS=11804-12000`` runs some of them."""
_ENOUGH = 5


def run(seed: int) -> Checks:
    try:
        return simulate(seed)
    except ViolationError as error:
        error.add_note(f"seed {seed}")
        raise


def test_every_record_is_done_and_none_is_given_to_two() -> None:
    histories = [run(seed) for seed in range(SEEDS)]
    assert sum(len(history.acknowledged) for history in histories) > 20 * SEEDS
    assert sum(history.failovers for history in histories) > 2 * SEEDS
    assert sum(history.at_most_once.total() for history in histories) > SEEDS


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_every_record_is_done_in_thousands_of_storms() -> None:
    first, last = map(int, NIGHTLY_SEEDS.split("-"))
    broken: list[str] = []
    for seed in range(first, last + 1):
        try:
            simulate(seed)
        except ViolationError as error:
            broken.append(f"seed {seed}: {error}")
        if len(broken) == _ENOUGH:
            break
    assert not broken, "\n".join(broken)


def test_a_seed_reproduces_a_history() -> None:
    first, second = (simulate(7) for _ in range(2))
    assert first.taken == second.taken
    assert first.acknowledged == second.acknowledged


def _moves_over(progress: GroupProgress, first: int, last: int) -> None:
    if last >= progress.start:
        progress.returned.cut(progress.start, last)
        progress.done.cut(progress.start, last)
        progress.start = last + 1


@pytest.mark.parametrize(
    "bug",
    [
        "answers_before_stored",
        "keeps_locks",
        "resets_counts",
        pytest.param("moves_start_over", marks=pytest.mark.sources),
    ],
)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "moves_start_over":
        monkeypatch.setattr(GroupProgress, "_finish", _moves_over)
    for seed in range(200):
        try:
            simulate(seed, Bugs(**{bug: True}))
        except ViolationError:
            return
    pytest.fail(f"{bug} was not found")

"""No sequence of faults breaks the guarantees of replication; planted bugs do."""

import pytest

from .checks import Checks, ViolationError
from .cluster import simulate
from .rules import Bugs, Rules

SEEDS = 60
NIGHTLY_SEEDS = 2500  # of each of four kinds of cluster

KINDS = [
    pytest.param(Rules(is_durable=durable, min_isr=min_isr), id=f"{name}-{min_isr}")
    for durable, name in ((True, "fsync"), (False, "memory"))
    for min_isr in (1, 2)
]


def run(seed: int, rules: Rules) -> Checks:
    try:
        return simulate(seed, rules)
    except ViolationError as error:
        error.add_note(f"seed {seed}, {rules}")
        raise


@pytest.mark.parametrize("rules", KINDS)
def test_nothing_that_was_acknowledged_is_lost(rules: Rules) -> None:
    histories = [run(seed, rules) for seed in range(SEEDS)]
    acknowledged = sum(len(history.acknowledged) for history in histories)
    assert acknowledged > 200 * SEEDS  # work is done even during faults


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rules", KINDS)
def test_nothing_is_lost_in_ten_thousand_storms(rules: Rules) -> None:
    for seed in range(SEEDS, SEEDS + NIGHTLY_SEEDS):
        run(seed, rules)


def test_a_seed_reproduces_a_history() -> None:
    first, second = (simulate(7, Rules()) for _ in range(2))
    assert first.committed == second.committed
    assert first.acknowledged == second.acknowledged


@pytest.mark.parametrize(
    ("bug", "rules"),
    [
        ("truncates_to_high_watermark", Rules()),
        ("ignores_the_epoch_of_the_answer", Rules()),
        ("ignores_broker_epochs", Rules(is_durable=False)),
        ("trusts_replicas_after_power_cuts", Rules(is_durable=False)),
        ("acknowledges_alone", Rules()),
    ],
)
def test_a_planted_bug_is_found(bug: str, rules: Rules) -> None:
    planted = rules._replace(bugs=Bugs(**{bug: True}))
    for seed in range(400):
        try:
            simulate(seed, planted)
        except ViolationError:
            return
    pytest.fail(f"{bug} was not found")

"""The audit of delayed records notices what is lost, repeated, early, out of order or too soon."""

import pytest

from perf.delay_exact_load import Audit, Load, value_of

START_MS = 1_800_000_000_000
LOAD = Load("t", 2, 10, START_MS, 1_000, far_every=5, far_ms=10**9, size=40)
DUE = [1, 2, 3, 4, 6, 7, 8, 9]  # of every five the first is due much later


def came(audit: Audit, number: int, *, late_ms: int = 5, due_ms: int | None = None) -> None:
    due = START_MS + (number if due_ms is None else due_ms)
    audit.take(value_of(due, number, LOAD.size), number % LOAD.partitions, due + late_ms)


def found(numbers: list[int]) -> dict[str, float]:
    audit = Audit(LOAD)
    for number in numbers:
        came(audit, number)
    return {name: value for name, value in audit.result().items() if value and name[0] != "p"}


def test_all_is_well() -> None:
    audit = Audit(LOAD)
    for place, number in enumerate(DUE):
        assert not audit.is_complete
        came(audit, number, late_ms=place)
    assert audit.is_complete
    result = audit.result()
    assert (result.pop("p50"), result.pop("p99"), result.pop("most")) == (4, 7, 7)
    assert set(result.values()) == {0}


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        (DUE[:-1], {"missing": 1}),
        ([*DUE, 9], {"twice": 1}),
        ([*DUE[:-1], 8], {"missing": 1, "twice": 1}),
        ([*DUE, 5], {"unexpected": 1, "disordered": 1, "disorder_ms": 4}),
        ([3, 1, 2, 4, 6, 7, 8, 9], {"disordered": 1, "disorder_ms": 2}),
    ],
)
def test_what_is_wrong(numbers: list[int], wrong: dict[str, int]) -> None:
    assert found(numbers) == {**wrong, "most": 5}


def test_early_by_a_millisecond() -> None:
    audit = Audit(LOAD)
    came(audit, 1, late_ms=-1)
    assert audit.result()["early"] == 1


def test_in_the_wrong_partition() -> None:
    audit = Audit(LOAD)
    audit.take(value_of(START_MS, 1, LOAD.size), 0, START_MS + 1)
    assert audit.result()["unexpected"] == 1


def test_a_value_has_its_size() -> None:
    value = value_of(START_MS, 7, 40)
    assert len(value) == 40
    assert value.startswith(b"1800000000000 000000007 x")

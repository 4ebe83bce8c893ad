import threading

import pytest

from qbus.broker.log.data_directory import in_threads


def test_results_keep_the_order_of_the_items() -> None:
    assert in_threads(4, lambda number: number * 2, range(20)) == list(range(0, 40, 2))
    assert in_threads(4, str, []) == []


def test_one_thread_is_the_callers() -> None:
    here = threading.get_ident()
    assert set(in_threads(1, lambda _: threading.get_ident(), range(3))) == {here}
    assert here not in set(in_threads(2, lambda _: threading.get_ident(), range(3)))


def test_what_one_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(2, lambda number: 1 // number, range(3))

"""Which topics of two IDCs are one: a topic and its copies, by whose it is and its id."""

from uuid import UUID

from qbus.clients.mirror.groups.counterparts import counterparts
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.routes import Topic

ORDERS, STOCK, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)


def own(name: str, topic_id: UUID) -> Topic:
    return Topic(name, topic_id, 1, {})


def copy(name: str, idc: str, of: UUID, *path: str) -> Topic:
    config = Provenance(idc, str(of), path or (idc,)).config()
    return Topic(name, UUID(int=of.int + 100), 1, config)


def test_a_topic_is_its_copy_at_the_target() -> None:
    here, there = [own("orders", ORDERS)], [copy("a.orders", "a", ORDERS), own("orders", OTHER)]
    assert counterparts("a", here, "b", there) == {"orders": "a.orders"}


def test_a_copy_of_the_targets_own_topic_leads_back_to_it() -> None:
    here, there = [copy("b.stock", "b", STOCK)], [own("stock", STOCK)]
    assert counterparts("a", here, "b", there) == {"b.stock": "stock"}


def test_copies_of_a_third_are_one_whichever_way_they_came() -> None:
    here, there = [copy("c.x", "c", OTHER)], [copy("c.x", "c", OTHER, "c", "a")]
    assert counterparts("a", here, "b", there) == {"c.x": "c.x"}


def test_a_topic_that_was_created_anew_is_another_one() -> None:
    here, there = [own("orders", OTHER)], [copy("a.orders", "a", ORDERS)]
    assert counterparts("a", here, "b", there) == {}


def test_a_name_that_only_looks_like_a_copys_is_none() -> None:
    assert counterparts("a", [own("orders", ORDERS)], "b", [own("a.orders", OTHER)]) == {}

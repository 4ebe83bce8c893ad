"""Quotas of clients: who shares a meter, what a connection remembers, and how many there are."""

from struct import pack

import pytest

from qbus.broker.net.peer import ANONYMOUS, Peer, Principal
from qbus.broker.quotas import ClientQuotas, ConnectionQuotas, Windows
from qbus.config import ListenerInfo
from qbus.errors import WireError
from qbus.metadata.client_quotas import DEFAULT, QuotaEntity

HERE = ListenerInfo.plaintext("127.0.0.1", 9092)
ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")


def peer(principal: Principal = ANONYMOUS) -> Peer:
    return Peer(1, "127.0.0.1", HERE, principal=principal)


def frame(client_id: str | None) -> memoryview:
    encoded = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(encoded)
    return memoryview(pack(">hhih", 0, 9, 7, size) + encoded + b"\0rest")


def limited(*, most: int = 100, **entities: QuotaEntity) -> ClientQuotas:
    quotas = ClientQuotas(most=most)
    quotas.set_quotas({entity: {"producer_byte_rate": 100.0} for entity in entities.values()})
    return quotas


def of(
    quotas: ClientQuotas, client: Peer, client_id: str | None, now: float = 0.0
) -> ConnectionQuotas:
    return quotas.of(client, frame(client_id), now)


def test_without_quotas_nothing_is_counted() -> None:
    quotas = ClientQuotas()
    assert not quotas.is_active
    assert of(quotas, peer(), "c").is_unlimited


def test_quotas_of_addresses_alone_do_not_count_requests() -> None:
    quotas = ClientQuotas()
    quotas.set_quotas({QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 1.0}})
    assert not quotas.is_active


def test_all_connections_of_a_user_share_one_meter_under_any_client_id() -> None:
    quotas = limited(user=QuotaEntity("alice"))
    meters = {id(of(quotas, peer(ALICE), f"client-{n}").produce) for n in range(20)}
    assert len(meters) == 1
    assert of(quotas, peer(BOB), "client-0").is_unlimited


def test_a_user_and_client_has_a_meter_for_each_client_id() -> None:
    quotas = limited(default=QuotaEntity(DEFAULT, DEFAULT))
    one, other = of(quotas, peer(ALICE), "a"), of(quotas, peer(ALICE), "b")
    assert one.produce is not other.produce
    assert of(quotas, peer(ALICE), "a").produce is one.produce
    assert of(quotas, peer(BOB), "a").produce is not one.produce


def test_a_client_id_is_shared_by_all_users() -> None:
    quotas = limited(client=QuotaEntity(None, "c"))
    assert of(quotas, peer(ALICE), "c").produce is of(quotas, peer(BOB), "c").produce


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_client_without_an_id_has_the_default(client_id: str | None) -> None:
    quotas = limited(default=QuotaEntity(None, DEFAULT))
    assert of(quotas, peer(), client_id).produce is not None


def test_a_connection_that_takes_another_client_id_is_looked_up_anew() -> None:
    quotas = limited(client=QuotaEntity(None, "c"))
    client = peer()
    assert of(quotas, client, "c").produce is not None
    assert of(quotas, client, "cc").produce is None
    assert of(quotas, client, "c").produce is not None


@pytest.mark.parametrize("other", ["", "a", "abd", "abcd", "b", None])
def test_a_client_id_is_known_by_all_of_its_bytes(other: str | None) -> None:
    quotas = limited(client=QuotaEntity(None, "abc"))
    client = peer()
    known = of(quotas, client, "abc")
    assert of(quotas, client, other).is_unlimited
    assert of(quotas, client, "abc").produce is known.produce


def test_a_known_connection_too_has_to_send_whole_headers() -> None:
    quotas = limited(client=QuotaEntity(None, "abc"))
    client = peer()
    of(quotas, client, "abc")
    with pytest.raises(WireError):
        quotas.of(client, frame("abc")[:9], 0.0)


def test_a_connection_whose_principal_changes_is_looked_up_anew() -> None:
    quotas = limited(user=QuotaEntity("alice"))
    client = peer()
    assert of(quotas, client, "c").is_unlimited
    client.principal = ALICE
    assert not of(quotas, client, "c").is_unlimited


def test_while_nothing_changes_a_connection_keeps_what_it_found() -> None:
    quotas = limited(user=QuotaEntity("alice"))
    client = peer(ALICE)
    assert of(quotas, client, "c") is of(quotas, client, "c")


def test_changed_quotas_hold_for_open_connections_and_keep_what_is_owed() -> None:
    quotas = limited(user=QuotaEntity("alice"))
    client = peer(ALICE)
    before = of(quotas, client, "c").produce
    assert before is not None
    before.charge(1100 + 400, 0.0)
    assert before.owes_s(0.0) == pytest.approx(5.0)
    quotas.set_quotas({QuotaEntity("alice"): {"producer_byte_rate": 1000.0}})
    after = of(quotas, client, "c").produce
    assert after is before
    assert after.owes_s(0.0) == pytest.approx(0.5)
    quotas.set_quotas({})
    assert not quotas.is_active
    assert of(quotas, client, "c").is_unlimited


def test_what_was_paid_for_new_connections_outlives_a_change() -> None:
    quotas = limited(user=QuotaEntity("alice"))
    client = peer(ALICE)
    of(quotas, client, "c").is_produce_known = True
    quotas.set_quotas({QuotaEntity("alice"): {"producer_byte_rate": 1.0}})
    assert of(quotas, client, "c").is_produce_known


def test_other_brokers_are_not_counted() -> None:
    quotas = ClientQuotas(is_exempt=lambda principal: principal == ALICE)
    quotas.set_quotas({QuotaEntity(DEFAULT): {"producer_byte_rate": 1.0}})
    assert of(quotas, peer(ALICE), "c").is_unlimited
    assert not of(quotas, peer(BOB), "c").is_unlimited


def test_unused_meters_are_let_go_and_never_two_are_in_use_for_one_user() -> None:
    quotas = limited(default=QuotaEntity(DEFAULT))
    idle, busy = peer(ALICE), peer(BOB)
    first = of(quotas, idle, "c").produce
    used = of(quotas, busy, "c").produce
    assert first is not None
    assert used is not None
    first.charge(10, 0.0)
    used.charge(5000, 0.0)
    quotas.let_go_rested(30.0)
    assert len(quotas.produce) == 1
    again = of(quotas, idle, "c", 30.0).produce
    assert again is of(quotas, peer(ALICE), "c", 30.0).produce
    assert of(quotas, busy, "c", 30.0).produce is used


def test_the_number_of_meters_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    quotas = limited(default=QuotaEntity(None, DEFAULT), most=10)
    meters = {id(of(quotas, peer(), f"client-{n}").produce) for n in range(1000)}
    assert len(meters) == 11  # one for all that came too late
    assert len(quotas.produce) == 10
    assert len([one for one in caplog.messages if "share one quota" in one]) == 1


def test_a_request_that_ends_in_its_header_is_malformed() -> None:
    quotas = limited(user=QuotaEntity("alice"))
    with pytest.raises(WireError):
        quotas.of(peer(), memoryview(b"\0\0\0\x09\0\0"), 0.0)


def test_a_protocol_with_one_client_id_shares_the_same_meters() -> None:
    quotas = limited(client=QuotaEntity(None, "c"))
    client = peer()
    known = quotas.of_client(client, "c", 0.0)
    assert known.produce is of(quotas, peer(), "c").produce
    assert quotas.of_client(client, "c", 0.0) is known


def test_who_uses_most_is_named_first() -> None:
    quotas = limited(default=QuotaEntity(DEFAULT))
    for name, amount in (("little", 1.0), ("much", 100.0), ("middling", 10.0)):
        found = of(quotas, peer(Principal("User", name)), "c")
        assert found.produce is not None
        found.produce.charge(amount, 0.0)
    assert [sharers.user for sharers, _ in quotas.produce.fastest(2, 1.0)] == ["much", "middling"]


def test_windows_say_how_much_may_be_used_at_once() -> None:
    assert Windows().burst_s == 10.0
    assert Windows(1, 5.0).burst_s == 5.0
    assert Windows(3, 2.0).burst_s == 4.0

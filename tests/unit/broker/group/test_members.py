"""Members, their instances, and their common protocols."""

import pytest

from qbus.broker.group.members import Member, Members
from qbus.broker.group.requests import GroupProtocol
from qbus.errors import ErrorCode


def member(name: str, *protocols: str, instance_id: str | None = None) -> Member:
    supported = tuple(GroupProtocol(protocol, protocol.encode()) for protocol in protocols)
    return Member(name, instance_id, "client", "host", 10_000, 60_000, supported)


def roster(*members: Member) -> Members:
    together = Members()
    for one in members:
        together.add(one)
    return together


class TestVote:
    def test_goes_to_what_most_prefer(self) -> None:
        members = roster(member("a", "x", "y"), member("b", "y", "x"), member("c", "y", "x"))

        assert members.vote() == "y"

    def test_counts_only_what_all_support(self) -> None:
        members = roster(member("a", "p", "x"), member("b", "p", "x"), member("c", "x"))

        assert members.vote() == "x"

    def test_of_equals_goes_to_the_one_who_came_first(self) -> None:
        assert roster(member("a", "x", "y"), member("b", "y", "x")).vote() == "x"
        assert roster(member("b", "y", "x"), member("a", "x", "y")).vote() == "y"

    def test_probes_follow_changes_of_the_cluster(self) -> None:
        members = roster(member("a", "x"), member("b", "x", "y"))
        members.remove("a")
        members.set_protocols(members["b"], (GroupProtocol("y", b""),))

        assert members.vote() == "y"

    def test_minds_no_protocol_that_is_named_twice(self) -> None:
        members = roster(member("a", "x", "x"), member("b", "x"))

        assert members.supports((GroupProtocol("x", b""),))
        members.remove("a")
        assert members.supports((GroupProtocol("x", b""),))


class TestCheck:
    @pytest.mark.parametrize(
        ("member_id", "instance_id", "error"),
        [
            ("a", None, ErrorCode.NONE),
            ("s", "one", ErrorCode.NONE),
            ("s", None, ErrorCode.NONE),
            ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
            ("a", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
            ("a", "one", ErrorCode.FENCED_INSTANCE_ID),
            ("nobody", "one", ErrorCode.FENCED_INSTANCE_ID),
        ],
    )
    def test_knows_members_and_who_holds_an_instance(
        self, member_id: str, instance_id: str | None, error: ErrorCode
    ) -> None:
        members = roster(member("a", "x"), member("s", "x", instance_id="one"))

        assert members.check(member_id, instance_id) is error

    def test_follows_an_instance_to_its_next_member(self) -> None:
        members = roster(member("s", "x", instance_id="one"))
        members.rename("s", "s2")

        assert members.check("s2", "one") is ErrorCode.NONE
        assert members.check("s", "one") is ErrorCode.FENCED_INSTANCE_ID
        members.remove("s2")
        assert members.check("s2", "one") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_slowest_member_sets_the_rebalance_timeout() -> None:
    slow, odd = member("slow", "x"), member("odd", "x")
    slow.rebalance_timeout_ms, odd.rebalance_timeout_ms = 90_000, -5

    assert roster(slow, odd, member("fast", "x")).rebalance_timeout() == 90.0
    assert roster(odd).rebalance_timeout() == 0.0
    assert Members().rebalance_timeout() == 0.0

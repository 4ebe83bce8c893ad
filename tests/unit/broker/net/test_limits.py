"""Limits on connections: of all, of each address, and whom they spare."""

from qbus.broker.net.limits import ConnectionLimits, parse_overrides


def test_without_limits_everybody_is_welcome() -> None:
    limits = ConnectionLimits()
    limits.opened("a")
    assert limits.refusal("PLAINTEXT", "a") is None


def test_a_limit_of_all_is_over_all_listeners() -> None:
    limits = ConnectionLimits(2)
    limits.opened("a")
    limits.opened("b")
    assert "max.connections" in str(limits.refusal("SSL", "c"))
    limits.closed("a")
    assert limits.refusal("SSL", "c") is None


def test_brokers_are_not_crowded_out_by_clients() -> None:
    limits = ConnectionLimits(1, exempt="INSIDE")
    limits.opened("a")
    assert limits.refusal("OUTSIDE", "b") is not None
    assert limits.refusal("INSIDE", "b") is None


def test_an_address_has_its_own_limit() -> None:
    limits = ConnectionLimits(100, 2, parse_overrides(("10.0.0.1:1", "::1:3")))
    for host, most in (("10.0.0.1", 1), ("::1", 3), ("10.0.0.2", 2)):
        for _ in range(most):
            assert limits.refusal("PLAINTEXT", host) is None
            limits.opened(host)
        assert "max.connections.per.ip" in str(limits.refusal("PLAINTEXT", host))
    limits.closed("::1")
    assert limits.refusal("PLAINTEXT", "::1") is None

"""The configuration of the abuse detection."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.service.toml import rules, setting

from . import rules as own
from .common import Lines, Output, Streaming

_MOST = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What no client may do in one window: the ``[limits]`` table. 0: no limit."""

    requests: int = setting(0, rules.whole(0, _MOST), "Requests of one client in a window.")
    bytes: int = setting(0, rules.whole(0, _MOST), "Bytes sent to one client in a window.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is usual: the ``[baseline]`` table. A factor of 0: not compared."""

    history: int = setting(
        3_600_000, own.duration(), "How long before a window a client's own past reaches."
    )
    own_factor: float = setting(
        0.0,
        rules.real(0, 1e9),
        "Alert when a client's rate is more than so many times its mean rate in its own past,"
        " since it was first seen in that; a client without a past has none to be compared with.",
    )
    peers_factor: float = setting(
        0.0,
        rules.real(0, 1e9),
        "Alert when it is more than so many times the percentile of all clients in the window.",
    )
    peers_percentile: float = setting(
        0.95, rules.real(0, 1), "Which percentile of all clients, as a fraction."
    )
    requests: int = setting(
        100, rules.whole(0, _MOST), "Fewer requests in a window are never unusual."
    )
    bytes: int = setting(
        10_000_000, rules.whole(0, _MOST), "Fewer bytes in a window are never unusual."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AbuseConfig(Streaming):
    """Everything the abuse detection is told, at the top of the file."""

    lines: Lines = setting(Lines(), rules.table(Lines), "How values are read.")
    output: Output = setting(Output(), rules.table(Output), "Where alerts go.")
    client: str = setting("address", own.column(), "The field that tells one client from another.")
    bytes: str = setting("bytes", own.column(), "The field that says how much was sent.")
    where: str = setting("", rules.text(1, 10_000), "An SQL expression: which lines count.")
    exempt: tuple[str, ...] = setting(
        (),
        rules.listed(rules.text(1, 4096), "a list of texts"),
        "Clients that may do anything; `*` stands for any text, as in `10.0.*`.",
    )
    window: int = setting(300_000, own.duration(), "How long a window is: a multiple of `slide`.")
    slide: int = setting(60_000, own.duration(), "How far one window begins after the other.")
    watermark: int = setting(
        120_000,
        own.duration(),
        "How late a line may come, by its time, after the latest that was seen; alerts come so"
        " long after a window's end.",
    )
    limits: Limits = setting(Limits(), rules.table(Limits), "What no client may do.")
    baseline: Baseline = setting(Baseline(), rules.table(Baseline), "What is usual.")
    repeat: bool = setting(
        False,
        rules.boolean(),
        "Whether every such window gives an alert; else only one that follows on one without.",
    )
    candidates: int = setting(
        1000,
        rules.whole(1, 100_000),
        "Of how many clients a window can tell at most, once by bytes and once by requests: those"
        " over limits and over their own past first, then those with the most.",
    )

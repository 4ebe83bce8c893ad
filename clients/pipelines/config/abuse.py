"""The configuration of the abuse detection."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.service.toml import rules, setting

from . import rules as own
from .common import Lines, Output, Streaming

_MOST = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a client in one window: the ``[limits]`` table. 0: no limit."""

    requests: int = setting(0, rules.whole(0, _MOST), "Requests of one client in a window.")
    bytes: int = setting(0, rules.whole(0, _MOST), "Bytes sent to one client in a window.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is usual: the ``[baseline]`` table. A factor of 0 disables a comparison."""

    history: int = setting(
        3_600_000, own.duration(), "Length of a client's own past before a window."
    )
    own_factor: float = setting(
        0.0,
        rules.real(0, 1e9),
        "Alert if a client's rate is more than so many times its mean rate in its own past, since"
        " it was first seen there. Clients without a past are not compared.",
    )
    peers_factor: float = setting(
        0.0,
        rules.real(0, 1e9),
        "Alert if a client's usage is more than so many times the percentile of all clients.",
    )
    peers_percentile: float = setting(
        0.95, rules.real(0, 1), "The percentile of all clients, as a fraction."
    )
    requests: int = setting(
        100, rules.whole(0, _MOST), "Fewer requests in a window never cause an alert."
    )
    bytes: int = setting(
        10_000_000, rules.whole(0, _MOST), "Fewer bytes in a window never cause an alert."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AbuseConfig(Streaming):
    """The top level of the abuse detection's file."""

    lines: Lines = setting(Lines(), rules.table(Lines), "How values are parsed.")
    output: Output = setting(Output(), rules.table(Output), "Where alerts go.")
    client: str = setting("address", own.column(), "The field that identifies a client.")
    bytes: str = setting("bytes", own.column(), "The field with the number of bytes sent.")
    where: str = setting("", rules.text(1, 10_000), "Only lines that match this SQL expression.")
    exempt: tuple[str, ...] = setting(
        (),
        rules.listed(rules.text(1, 4096), "a list of texts"),
        "Clients without alerts; `*` stands for any text, as in `10.0.*`.",
    )
    window: int = setting(300_000, own.duration(), "Length of a window, a multiple of `slide`.")
    slide: int = setting(60_000, own.duration(), "Time from the start of one window to the next.")
    watermark: int = setting(
        120_000,
        own.duration(),
        "How late a line may arrive, by its time, after the latest line; alerts are delayed by as"
        " much after a window's end.",
    )
    limits: Limits = setting(Limits(), rules.table(Limits), "Fixed limits.")
    baseline: Baseline = setting(Baseline(), rules.table(Baseline), "Comparisons with usual rates.")
    repeat: bool = setting(
        False,
        rules.boolean(),
        "Whether every window with too much usage causes an alert, not only the first one.",
    )
    candidates: int = setting(
        1000,
        rules.whole(1, 100_000),
        "The most clients with alerts in a window, by bytes and by requests: first those over"
        " limits and over their own past, then those with the most.",
    )

"""The configuration of the audit."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass
from datetime import datetime

from qbus.service.toml import rules, setting

from . import rules as own
from .common import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyConfig:
    """What the topics are compared with: the ``[copy]`` table, with one of the first two."""

    archive: str = setting("", rules.text(1, 4096), "The path of an archive.")
    bootstrap: str = setting("", own.bootstrap(), "The cluster that has a copy.")
    topics: tuple[tuple[str, str], ...] = setting(
        (),
        own.topic_names(),
        'What topics are called there: `{orders = "A.orders"}`. Default: the same.',
    )
    options: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Further options of the source that reads it."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig(Pipeline):
    """Everything the audit is told, at the top of the file."""

    copy: CopyConfig = setting(CopyConfig(), rules.table(CopyConfig), "What is compared with.")
    interval: int = setting(
        3_600_000, own.duration(), "How long the intervals are that are compared."
    )
    since: datetime | None = setting(
        None, own.moment(), "Only records with a timestamp from then on. Default: all there are."
    )
    until: datetime | None = setting(
        None, own.moment(), "Only records with an earlier timestamp. Default: all there are."
    )
    settle: int = setting(
        0,
        own.duration(at_least_ms=0),
        "Records younger than that are left out: they may be on their way. Default: none are.",
    )
    content: bool = setting(
        True,
        rules.boolean(),
        "Whether keys, values, headers and timestamps are compared; else offsets alone.",
    )
    differences: int = setting(
        20, rules.whole(0, 10_000), "How many ranges of differing offsets are listed at most."
    )

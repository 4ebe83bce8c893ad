"""The configuration of the audit."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass
from datetime import datetime

from qbus.security.table import SecurityTable, security_rule
from qbus.service.toml import rules, setting

from . import rules as own
from .common import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyConfig:
    """What topics are compared with: the ``[copy]`` table; ``archive`` or ``bootstrap`` is set."""

    archive: str = setting("", rules.text(1, 4096), "The path of an archive.")
    bootstrap: str = setting("", own.bootstrap(), "The cluster with the copy.")
    security: SecurityTable = setting(
        SecurityTable(), security_rule(), "As `security` at the top, for the cluster with the copy."
    )
    topics: tuple[tuple[str, str], ...] = setting(
        (),
        own.topic_names(),
        'Names of topics in the copy: `{orders = "A.orders"}`. Default: the same names.',
    )
    options: tuple[tuple[str, str], ...] = setting(
        (), own.options(), "Further options of the source that reads the copy."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig(Pipeline):
    """The top level of the audit's file."""

    copy: CopyConfig = setting(
        CopyConfig(), rules.table(CopyConfig), "What topics are compared with."
    )
    interval: int = setting(3_600_000, own.duration(), "Length of the compared intervals.")
    since: datetime | None = setting(
        None, own.moment(), "Only records with this timestamp or a later one. Default: all records."
    )
    until: datetime | None = setting(
        None, own.moment(), "Only records with an earlier timestamp. Default: all records."
    )
    settle: int = setting(
        0,
        own.duration(at_least_ms=0),
        "Leave out records younger than this, which may not be copied yet. Default: none.",
    )
    content: bool = setting(
        True,
        rules.boolean(),
        "Whether keys, values, headers and timestamps are compared, not only offsets.",
    )
    differences: int = setting(
        20, rules.whole(0, 10_000), "The most ranges of differing offsets in the report."
    )

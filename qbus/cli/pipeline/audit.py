"""`qbus pipeline audit`."""

from pathlib import Path

import click

from qbus.cli.bootstrap import bootstrap as _bootstrap
from qbus.cli.parameters import key_value
from qbus.cli.pipeline.options import common, source

NOT_EQUAL = 3


@click.command()
@click.option("--archive", "path", metavar="DIR", help="Compare with this archive.")
@click.option(
    "--copy",
    type=_bootstrap,
    metavar="HOST:PORT,...",
    help="Or with the copy in the cluster of these brokers.",
)
@click.option(
    "--copy-topic",
    "renamed",
    type=key_value,
    multiple=True,
    metavar="TOPIC=NAME",
    help="What TOPIC is called there; may be repeated.",
)
@click.option("--interval", metavar="DURATION", help="What is counted together. Default: 1 hour.")
@click.option("--since", metavar="TIME", help="Only records from then on, as 2026-03-01T12:00Z.")
@click.option("--until", metavar="TIME", help="Only earlier ones.")
@click.option("--settle", metavar="DURATION", help="Leave out younger ones. Default: none.")
@click.option("--offsets-only", is_flag=True, help="Do not compare what is in the records.")
@common
@click.pass_context
def audit(
    context: click.Context,
    /,
    *,
    path: str | None,
    copy: str | None,
    renamed: tuple[tuple[str, str], ...],
    interval: str | None,
    since: str | None,
    until: str | None,
    settle: str | None,
    offsets_only: bool,
    config_file: Path | None,
    topics: tuple[str, ...],
    pattern: str | None,
    bootstrap: str | None,
    master: str,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Compare topics with their archive, or with their copy in another cluster.

    Counts records, gaps and duplicates of each partition and interval. Exits with 0 where both are
    equal, 3 where they are not, 1 where it failed.
    """
    from qbus.cli.output import emit
    from qbus.cli.pipeline.audit_tables import audit_report
    from qbus.cli.pipeline.running import run_pipeline

    chosen = {
        **source(topics, pattern, bootstrap),
        "copy.archive": path,
        "copy.bootstrap": copy,
        "copy.topics": dict(renamed),
        "interval": interval,
        "since": since,
        "until": until,
        "settle": settle,
        "content": False if offsets_only else None,
    }
    report = run_pipeline(
        "audit",
        config_file=config_file,
        chosen=chosen,
        master=master,
        settings=settings,
        as_json=as_json,
        mode="batch",
    )
    emit(report.document(), audit_report, as_json=as_json)
    if not report.is_equal:
        context.exit(NOT_EQUAL)

"""`qbus demo`."""

from pathlib import Path

import click

from qbus.cli.options import json_option


@click.command()
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    metavar="FILE",
    help="File to send. Default: the largest text log below /var/log.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the broker's data in this new directory.",
)
@json_option
@click.pass_context
def demo(context: click.Context, /, *, log: Path | None, keep: Path | None, as_json: bool) -> None:
    """Send a log file through a temporary broker, and compare every byte.

    The broker is a process with a temporary directory and a free port. A consumer group of two
    members reads the records. The report has throughput, latency and files on disk.
    """
    from qbus.cli.demo.report import next_steps, report
    from qbus.cli.demo.run import ship
    from qbus.cli.output import emit, note
    from qbus.cli.running import run_to_end

    accounts: list[dict[str, object]] = []

    async def run() -> None:
        accounts.append(await ship(log, keep))

    run_to_end(run())
    (account,) = accounts
    emit(account, report, as_json=as_json)
    if not as_json:
        note("\n" + next_steps(str(keep or "./data"), str(account["file"])))
    if account["difference"] is not None or account["broker_exit_code"] != 0:
        context.exit(1)

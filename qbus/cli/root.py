"""The root of the command: the list of subcommands, and how every one of them fails."""

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from qbus.cli.failures import reported
from qbus.cli.lazy import Entry, LazyGroup

COMMANDS = {
    "broker": Entry("broker.command:broker", "Run a broker."),
    "cluster": Entry("cluster.command:cluster", "Run a local cluster; show a cluster's status."),
    "topic": Entry("topic.command:topic", "Create, list, describe, alter and delete topics."),
    "group": Entry("group.command:group", "List, describe, reset and delete consumer groups."),
    "transaction": Entry(
        "transaction.command:transaction",
        "List, describe and abort transactions; find hanging ones.",
    ),
    "user": Entry("user.command:user", "Add, list and remove users, who log in with a password."),
    "acl": Entry("acl.command:acl", "Add, list, remove and check rules: who may do what."),
    "quota": Entry("quota:quota", "Show, set and remove limits of users, clients and addresses."),
    "tls": Entry("tls:tls", "Make certificates for trials."),
    "delay": Entry("delay:delay", "Show the delayed records of topics."),
    "queue": Entry("queue.command:queue", "Add jobs to queues, work on them, watch them."),
    "trace": Entry("trace:trace", "Show what became of a record or a job, step by step."),
    "produce": Entry("produce.command:produce", "Send the lines of a file or of stdin to a topic."),
    "consume": Entry("consume.command:consume", "Print the records of a topic."),
    "reassign": Entry("reassign.command:reassign", "Move partitions to other brokers."),
    "log-dirs": Entry(
        "log_dirs:log_dirs", "Show brokers' data directories; move replicas between them."
    ),
    "elect-leaders": Entry(
        "elect_leaders:elect_leaders", "Elect preferred, or any, replicas as leaders."
    ),
    "agent": Entry("agent.command:agent", "Ship log files to topics; show agents' status."),
    "mirror": Entry("mirror.command:mirror", "Copy topics from other datacenters."),
    "pipeline": Entry(
        "pipeline.command:pipeline", "Archive, count, watch and audit topics on Spark."
    ),
    "context": Entry("context.command:context", "Name clusters, and choose one."),
    "broker-config": Entry("broker.config:broker_config", "Show or change a broker's settings."),
    "log": Entry("log.command:log", "Salvage the logs of a stopped broker from damage."),
    "dump-log": Entry("dump.command:dump_log", "Show and check the contents of log files."),
    "demo": Entry("demo.command:demo", "Send a log file through a broker, and compare."),
    "completion": Entry("completion:completion", "Print the completion script of a shell."),
    "version": Entry("version:version", "Print the version."),
}


class Root(LazyGroup):
    """The group of all commands, which report errors in one line instead of a traceback."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with reported():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with reported():
            return super().invoke(ctx)


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from qbus._version import __version__

        click.echo(f"qbus {__version__}")
        ctx.exit()


@click.group(
    cls=Root,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands find the cluster by --bootstrap HOST:PORT, --bootstrap zk://HOST:PORT/CHROOT,"
    " $QBUS_BOOTSTRAP, or the context that 'qbus context use' chose. Each takes --command-config"
    " FILE, properties that say how to connect.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def qbus() -> None:
    """Qbus: a partitioned commit log that speaks the Kafka protocol."""


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    if sys.stdout is None:  # closed by the shell: what is printed goes nowhere
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the exit
    qbus.main(prog_name="qbus")

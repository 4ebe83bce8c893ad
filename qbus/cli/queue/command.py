"""`qbus queue`: create, add, work, peek, stat, describe, set, redrive, pause."""

import os
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.completing import topics
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command, config_option
from qbus.cli.output import emit, note
from qbus.cli.parameters import IntRange, delay_text, header, idle_time, limit
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from qbus.cli.output import Document
    from qbus.clients import Admin

_group_option = click.option(
    "--group",
    metavar="GROUP",
    default="disque",
    show_default=True,
    help="The share group that takes the jobs.",
)
_queue_argument = click.argument("name", metavar="QUEUE", shell_complete=topics)


@click.group(cls=OrderedGroup)
def queue() -> None:
    """Add jobs to queues, work on them, watch them.

    A queue is a topic, and a job a record of it, which one worker at a time has until it is done.
    """


@queue.command()
@_queue_argument
@click.option("--partitions", type=IntRange(1), metavar="N", help="Default: the number of brokers.")
@click.option(
    "--replication-factor",
    type=IntRange(1),
    metavar="N",
    help="Default: 3, or the number of brokers if that is less.",
)
@config_option
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    shell_complete=topics,
    help="Where jobs of the queue go that could not be done; a topic, which is created if there is"
    " none.",
)
@click.option("--if-not-exists", is_flag=True, help="An existing queue is no error.")
@_group_option
@client_command
async def create(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[tuple[str, str], ...],
    dead_letters: str | None,
    if_not_exists: bool,
    group: str,
    target: Target,
    as_json: bool,
) -> None:
    """Create QUEUE. One that does not exist is also created when a job is added to it.

    A job is given out 5 times at most, after 200 ms, 400 ms and so on: see 'qbus queue set'.
    """
    from qbus.cli.queue.settings import changes_of, read_settings
    from qbus.cli.queue.topics import create_dead_letters, create_queue, topic_of
    from qbus.cli.session import administration

    topic = topic_of(name)
    changes = changes_of(topic, dead_letters=dead_letters)
    async with administration(target) as admin:
        document = await create_queue(
            admin,
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            config={**dict(config), **changes},
            is_needed=not if_not_exists,
        )
        if dead_letters:
            await create_dead_letters(admin, dead_letters)
        await _configure(admin, group, topic, {} if document["created"] else changes)
        settings = (await read_settings(admin, topic, group))["settings"]
    emit({"queue": name, **document}, _created, as_json=as_json)
    limit, letters = settings["delivery_limit"]["value"], settings["dead_letters"]["value"]
    if document["created"] and limit and not letters:
        note(f"A job that fails {limit} times is dropped: --dead-letters TOPIC keeps it.")


async def _configure(admin: "Admin", group: str, topic: str, changes: dict[str, str]) -> None:
    """Have a group of one's own begin at the earliest job, and change an existing queue."""
    from qbus.clients.types import ConfigKind
    from qbus.jobs import GROUP

    if group != GROUP:
        earliest = {"share.auto.offset.reset": "earliest"}
        await admin.alter_config(ConfigKind.GROUP, group, set=earliest)
    if changes:
        await admin.alter_config(ConfigKind.TOPIC, topic, set=changes)


def _created(document: "Document") -> str:
    from qbus.cli.units import counted

    what = f"queue {document['queue']}"
    if not document["created"]:
        return f"There is a {what} already."
    return f"Created {what} with {counted(document['partitions'], 'partition')}."


@queue.command()
@_queue_argument
@click.argument("bodies", metavar="[BODY]...", nargs=-1)
@click.option("--delay", type=delay_text, metavar="15m", help="Do not give the jobs out before.")
@click.option(
    "--ttl",
    type=delay_text,
    metavar="1d",
    default="1d",
    show_default=True,
    help="After so long a job is not worth doing.",
)
@click.option(
    "--retry",
    type=delay_text,
    metavar="5m",
    help="Give a job out again when it was not done for so long; 0: give it out at most once."
    " Default: a tenth of --ttl, at most 5m.",
)
@click.option("--key", metavar="K", help="Jobs with a key share a partition.")
@click.option(
    "--header",
    "headers",
    type=header,
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every job; may be repeated.",
)
@click.option("--wait", is_flag=True, help="Wait until the jobs are done, and print their results.")
@_group_option
@client_command
async def add(
    *,
    name: str,
    bodies: tuple[str, ...],
    delay: str | None,
    ttl: str,
    retry: str | None,
    key: str | None,
    headers: tuple[tuple[str, bytes], ...],
    wait: bool,
    group: str,
    target: Target,
    as_json: bool,
) -> None:
    """Add a job to QUEUE for each BODY, or else for each line of stdin; print their ids."""
    from qbus.cli.queue.adding import add_jobs, bodies_of_stdin

    options: dict[str, Any] = {"delay": delay, "ttl": ttl, "retry": retry, "headers": headers}
    if key is not None:
        options["key"] = os.fsencode(key)
    source = [os.fsencode(body) for body in bodies] if bodies else bodies_of_stdin()
    await add_jobs(target, name, group, source, options, wait=wait, as_json=as_json)


@queue.command()
@_queue_argument
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True)
@click.option(
    "--parallel",
    type=IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="How many commands run at once.",
)
@click.option("--count", type=IntRange(1), metavar="N", help="End after so many jobs.")
@click.option(
    "--idle", type=delay_text, metavar="10s", help="End when there was no job for so long."
)
@click.option(
    "--backoff",
    type=delay_text,
    metavar="30s",
    help="How long a job waits that could not be done. Default: as the queue says.",
)
@click.option(
    "--result", is_flag=True, help="Keep what the command prints on stdout as the job's result."
)
@_group_option
@client_command
async def work(
    *,
    name: str,
    command: tuple[str, ...],
    parallel: int,
    count: int | None,
    idle: str | None,
    backoff: str | None,
    result: bool,
    group: str,
    target: Target,
    as_json: bool,
) -> None:
    """Run COMMAND for each job of QUEUE, until Ctrl-C.

    It has the job's body on stdin, and in its environment QBUS_QUEUE, QBUS_JOB_ID, QBUS_JOB_KEY,
    QBUS_DELIVERIES, QBUS_TOPIC, QBUS_PARTITION and QBUS_OFFSET. If its exit code is 0, the job is
    done; otherwise it is given out again. While it runs, nobody else gets the job. With --json,
    what it prints goes to stderr.
    """
    from qbus.cli.queue.working import Work

    working = Work(name, command, backoff=backoff, keeps_result=result, is_quiet=as_json)
    document = await working.run(target, group, parallel=parallel, count=count, idle=idle)
    if as_json:
        emit(document, _worked, as_json=True)
    else:
        note(_worked(document))  # stdout is the commands'


def _worked(document: "Document") -> str:
    from qbus.cli.units import counted

    text = f"Did {counted(document['done'], 'job')} of {document['queue']}"
    if document["failed"]:
        text += f"; {counted(document['failed'], 'attempt')} failed"
    if document["lost"]:
        text += f"; {counted(document['lost'], 'job')} went to somebody else meanwhile"
    return f"{text}."


@queue.command()
@_queue_argument
@click.option(
    "--limit", type=IntRange(1), default=10, show_default=True, metavar="N", help="How many."
)
@click.option("--newest", is_flag=True, help="The last ones first.")
@_group_option
@client_command
async def peek(
    *, name: str, limit: int, newest: bool, group: str, target: Target, as_json: bool
) -> None:
    """Show the jobs of QUEUE that are not done, without taking them: the oldest first.

    Those that workers have at the moment are among them. Delayed jobs that are not due yet are
    counted: 'qbus delay list' shows them. Reads the queue's log from the first job that is not
    done.
    """
    from qbus.cli.queue.peeking import not_due, peek_jobs
    from qbus.cli.queue.tables import jobs_table
    from qbus.cli.queue.topics import topic_of
    from qbus.cli.session import administration

    async with administration(target) as admin:
        found = await peek_jobs(admin, topic_of(name), group, limit, newest=newest)
        delayed = await not_due(admin, topic_of(name))
    emit({"queue": name, "jobs": found, **delayed}, jobs_table, as_json=as_json)


@queue.command()
@click.argument("names", metavar="[QUEUE]...", nargs=-1, shell_complete=topics)
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@_group_option
@client_command
async def stat(
    *, names: tuple[str, ...], watch: bool, group: str, target: Target, as_json: bool
) -> None:
    """Show how many jobs wait, and are worked on, and how old the oldest is.

    Without a QUEUE: every topic that the group takes records of.
    """
    from qbus.cli.failures import Failure
    from qbus.cli.queue.tables import queues_table
    from qbus.cli.queue.topics import offline_partitions, read_queues
    from qbus.cli.running import watching
    from qbus.cli.session import administration

    async with administration(target) as admin:
        if watch:
            await watching(lambda: read_queues(admin, names, group), queues_table, as_json=as_json)
        documents = await read_queues(admin, names, group)
        offline = [] if names else await offline_partitions(admin)
    emit(documents, queues_table, as_json=as_json)
    if offline:
        raise Failure(f"partitions without a leader may hold jobs, too: {', '.join(offline)}")


@queue.command()
@_queue_argument
@_group_option
@client_command
async def describe(*, name: str, group: str, target: Target, as_json: bool) -> None:
    """Show the settings of QUEUE: deliveries, back-off, dead letters, idle time-out."""
    from qbus.cli.queue.settings import read_settings
    from qbus.cli.queue.tables import settings_table
    from qbus.cli.queue.topics import topic_of
    from qbus.cli.session import administration

    async with administration(target) as admin:
        document = await read_settings(admin, topic_of(name), group)
    emit({"queue": name, **document}, settings_table, as_json=as_json)


@queue.command("set")
@_queue_argument
@click.option(
    "--delivery-limit",
    type=limit,
    metavar="N|none",
    help="How often a job is given out at most.",
)
@click.option(
    "--backoff",
    type=delay_text,
    metavar="10s",
    help="How long a job waits after its first delivery failed; each further one doubles it.",
)
@click.option("--backoff-max", type=delay_text, metavar="1h", help="How long a job waits at most.")
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    shell_complete=topics,
    help="Where jobs go that could not be done; a topic, which is created if there is none. Empty:"
    " as the group says.",
)
@click.option(
    "--idle",
    type=idle_time,
    metavar="10m|never",
    help="Delete the queue once it has no job and was not used for this time.",
)
@client_command
async def set_settings(
    *,
    name: str,
    delivery_limit: str | None,
    backoff: str | None,
    backoff_max: str | None,
    dead_letters: str | None,
    idle: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """Change the settings of QUEUE, for every share group that takes its jobs."""
    from qbus.cli.queue.settings import changes_of
    from qbus.cli.queue.topics import create_dead_letters, topic_of
    from qbus.cli.session import administration
    from qbus.clients.types import ConfigKind

    topic = topic_of(name)
    changes = changes_of(
        topic,
        delivery_limit=delivery_limit,
        backoff=backoff,
        backoff_max=backoff_max,
        dead_letters=dead_letters,
        idle=idle,
    )
    if not changes:
        raise click.UsageError("Name a setting, such as --delivery-limit 10.")
    async with administration(target) as admin:
        if dead_letters:
            await admin.describe_topic(topic)  # fails before anything is created
            await create_dead_letters(admin, dead_letters)
        await admin.alter_config(ConfigKind.TOPIC, topic, set=changes)
    emit({"queue": name, "topic": topic, "set": changes}, _set, as_json=as_json)


def _set(document: "Document") -> str:
    changes = ", ".join(f"{key}={value}" for key, value in document["set"].items())
    return f"Queue {document['queue']}: {changes}."


@queue.command()
@click.argument("topic", metavar="TOPIC", shell_complete=topics)
@click.option(
    "--to",
    "queue_name",
    metavar="QUEUE",
    shell_complete=topics,
    help="Where to put them. Default: where each came from.",
)
@click.option("--count", type=IntRange(1), metavar="N", help="At most so many. Default: all.")
@click.option(
    "--group",
    metavar="GROUP",
    default="qbus-redrive",
    show_default=True,
    help="The share group that takes the dead letters, and so remembers which were put back.",
)
@client_command
async def redrive(
    *,
    topic: str,
    queue_name: str | None,
    count: int | None,
    group: str,
    target: Target,
    as_json: bool,
) -> None:
    """Put the dead letters in TOPIC back into their queues.

    Ends when there are no more. A dead letter that the command is interrupted at may be put back
    twice.
    """
    from qbus.cli.queue.redriving import redrive_letters
    from qbus.cli.queue.topics import topic_of

    to = None if queue_name is None else topic_of(queue_name)
    document = await redrive_letters(target, topic, to, count, group)
    emit(document, _redriven, as_json=as_json)


def _redriven(document: "Document") -> str:
    from qbus.cli.units import counted

    text = f"Put back {counted(document['records'], 'record')} of {document['topic']}"
    if document["skipped"]:
        text += f"; left {counted(document['skipped'], 'record')} that name no queue"
    return f"{text}."


@queue.command()
@_queue_argument
@click.argument("what", metavar="in|out|all|none", type=click.Choice(["in", "out", "all", "none"]))
@client_command
async def pause(*, name: str, what: str, target: Target, as_json: bool) -> None:
    """Pause QUEUE: take no jobs in, give none out, neither; or none: let it go on.

    What would be taken in is refused to Disque's commands only, not to producers of Kafka's
    protocol, such as 'qbus queue add'.
    """
    from qbus.cli.queue.topics import topic_of
    from qbus.cli.session import administration
    from qbus.clients.types import ConfigKind

    async with administration(target) as admin:
        await admin.alter_config(ConfigKind.TOPIC, topic_of(name), set={"qbus.queue.pause": what})
    emit({"queue": name, "paused": what}, _paused, as_json=as_json)


def _paused(document: "Document") -> str:
    said = {
        "in": "takes no jobs in",
        "out": "gives no jobs out",
        "all": "neither takes jobs in nor gives them out",
        "none": "is not paused",
    }
    return f"Queue {document['queue']} {said[document['paused']]}."

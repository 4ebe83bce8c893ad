"""The command of ``python -m perf``: measure the claims, beside Apache Kafka where it can run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from perf import (
    abuse,
    agent,
    agent_delay,
    backlog,
    before,
    cluster,
    cluster_topics,
    commits,
    compaction,
    delay,
    delay_exact,
    delay_plain,
    delay_scale,
    failover,
    footprint,
    latency,
    mirror,
    partitions,
    queues,
    rebalance,
    requests,
    scaling,
    sdk,
    sdk_forms,
    security,
    spark,
    spark_start,
    throughput,
    topics,
    transactions,
    workers,
)
from perf.peers import job_queues, schedulers
from perf.progress import progress
from perf.report import Figure, show, write_json, write_markdown

CLAIMS: dict[str, Callable[[int, float], list[Figure]]] = {
    "throughput": throughput.run,
    "fsync": throughput.run_fsync,
    "requests": requests.run,
    "requests-workers": requests.run_workers,
    "requests-floor": requests.run_floor,
    "latency": latency.run,
    "sdk": sdk.run,
    "sdk-forms": sdk_forms.run,
    "sdk-reading": sdk_forms.run_reading,
    "workers": workers.run,
    "workers-scaling": scaling.run,
    "startup": footprint.run_startup,
    "memory": footprint.run_memory,
    "backlog": backlog.run,
    "partitions": partitions.run,
    "commits": commits.run,
    "compaction": compaction.run,
    "transactions": transactions.run,
    "delay": delay.run,
    **{f"delay-{name}": partial(delay.run, peers=(name,)) for name in schedulers.NAMES},
    "delay-itself": delay.run_by_itself,
    "delay-exact": delay_exact.run,
    **{
        f"delay-exact-{name}": partial(delay_exact.run, names=(name,))
        for name in delay_exact.SENDERS
    },
    "delay-scale": delay_scale.run,
    "delay-cluster": delay_scale.run_cluster,
    "delay-plain": delay_plain.run,
    "delay-enabled": delay_plain.run_enabled,
    "queues": queues.run,
    **{f"queues-{name}": partial(queues.run, peers=(name,)) for name in job_queues.NAMES},
    "queues-workers": partial(queues.run, processes=2),
    "abuse": abuse.run,
    "security": security.run,
    "security-cost": security.run_cost,
    "agent": agent.run,
    "agent-delay": agent_delay.run,
    "cluster": cluster.run,
    "failover": failover.run,
    "rebalance": rebalance.run,
    "cluster-topics": cluster_topics.run,
    "topics": topics.run,
    "spark": spark.run,
    "spark-start": spark_start.run,
    "mirror": mirror.run,
}
#: What is part of another claim, to be measured by itself.
PARTS = {
    *(f"delay-{name}" for name in schedulers.NAMES),
    *(f"delay-exact-{name}" for name in delay_exact.SENDERS),
    *(f"queues-{name}" for name in (*job_queues.NAMES, "workers")),
    "security-cost",
}


@click.command()
@click.argument("claims", nargs=-1, type=click.Choice(sorted(CLAIMS)))
@click.option("--rounds", default=3, show_default=True, help="Pairs to measure, after a warm-up.")
@click.option("--scale", default=1.0, show_default=True, help="Factor on the amount of load.")
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Another checkout to compare with, instead of Kafka: throughput, latency, cluster, sdk.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Keep every figure.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the tables there too.")
def main(
    claims: tuple[str, ...],
    rounds: int,
    scale: float,
    against: Path | None,
    json_file: Path | None,
    markdown: Path | None,
) -> None:
    """Measure CLAIMS (all by default), Qbus and Apache Kafka in turn on this machine."""
    before.checkout = against
    results = {}
    chosen = claims or [one for one in CLAIMS if one not in PARTS]
    for number, name in enumerate(chosen, 1):
        with progress(name, number, len(chosen)):
            results[name] = CLAIMS[name](rounds, scale)
        show(name, results[name])
        if json_file:
            write_json(json_file, results)
        if markdown:
            command = f"python -m perf {{}} --rounds {rounds} --scale {scale:g}"
            write_markdown(markdown, results, command)

"""A driver that copies a topic until it is killed: ``python -m tests.spark.copying JSON``.

A streaming query for each copy, to a topic and perhaps to Parquet, with a checkpoint of its own. It
ends with an error when a query fails: who started it starts it again.
"""

import json
import sys

from tests.support.spark_session import spark_session


def main(
    master: str, bootstrap: str, source: str, target: str, directory: str, copies: str
) -> None:
    """Copy ``source`` to the topic ``target`` and, if ``copies`` has that, to files.

    Checkpoints and files are below ``directory``.
    """
    with spark_session(master, spark__executor__memory="512m", spark__cores__max="2") as spark:
        options = {"kafka.bootstrap.servers": bootstrap}
        reader = spark.readStream.format("qbus").options(**options).option("subscribe", source)
        # New partitions are noticed by whoever asks for topics anew.
        reader = reader.option("kafka.metadata.max.age.ms", "1000")
        rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
        to_topic = rows.writeStream.format("qbus").options(**options).option("topic", target)
        to_files = rows.writeStream.format("parquet").option("path", f"{directory}/files")
        writers = {"topic": to_topic, "files": to_files}
        for name in copies.split():
            writer = writers[name].option("checkpointLocation", f"{directory}/checkpoint-{name}")
            writer.trigger(processingTime="1 second").start()
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

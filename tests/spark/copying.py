"""A driver that copies a topic until it is killed: ``python -m tests.spark.copying JSON``.

Two streaming queries of one application, to a topic and to Parquet, each with a checkpoint of its
own. It ends with an error when a query fails: who started it starts it again.
"""

import json
import sys

from tests.support.spark_session import spark_session


def main(master: str, bootstrap: str, source: str, target: str, directory: str) -> None:
    """Copy ``source`` to the topic ``target``, and to files below ``directory``."""
    with spark_session(master, spark__executor__memory="512m", spark__cores__max="2") as spark:
        options = {"kafka.bootstrap.servers": bootstrap}
        reader = spark.readStream.format("qbus").options(**options).option("subscribe", source)
        # New partitions are noticed by whoever asks for topics anew.
        reader = reader.option("kafka.metadata.max.age.ms", "1000")
        rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
        to_topic = rows.writeStream.format("qbus").options(**options).option("topic", target)
        to_files = rows.writeStream.format("parquet").option("path", f"{directory}/files")
        for name, writer in (("topic", to_topic), ("files", to_files)):
            writer = writer.option("checkpointLocation", f"{directory}/checkpoint-{name}")
            writer.trigger(processingTime="1 second").start()
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

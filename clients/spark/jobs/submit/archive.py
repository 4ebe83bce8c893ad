"""The pipeline ``archive``, for ``spark-submit``."""

from qbus.clients.spark.jobs.submitted import main

if __name__ == "__main__":
    main("archive")

"""The pipeline ``audit``, for ``spark-submit``."""

from qbus.clients.pipelines.submitted import main

if __name__ == "__main__":
    main("audit")

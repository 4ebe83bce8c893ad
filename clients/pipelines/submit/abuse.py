"""The pipeline ``abuse``, for ``spark-submit``."""

from qbus.clients.pipelines.submitted import main

if __name__ == "__main__":
    main("abuse")

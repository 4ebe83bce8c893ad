"""The pipeline ``abuse``, for ``spark-submit``."""

import qbus.clients.pipelines.submitted  # absolute: this file runs as a script

if __name__ == "__main__":
    qbus.clients.pipelines.submitted.main("abuse")

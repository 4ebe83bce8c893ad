"""Ready pipelines on Spark: archive, statistics, abuse detection, audit.

Each has a configuration (``config``), transformations from data frame to data frame that know
neither brokers nor files, and a shell that reads, writes and keeps checkpoints. ``qbus pipeline``
runs them here, the scripts in ``submit`` are for ``spark-submit``.
"""

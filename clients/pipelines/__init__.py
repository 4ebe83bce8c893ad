"""Ready pipelines on Spark: archive, statistics, abuse detection, audit.

Each has a configuration (``config``), pure transformations of data frames, and a job that reads,
writes and keeps checkpoints. ``qbus pipeline`` runs them; the scripts in ``submit`` are for
``spark-submit``.
"""

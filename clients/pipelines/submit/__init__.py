"""Files for ``spark-submit``, one for each pipeline: ``archive.py --config FILE.toml``."""

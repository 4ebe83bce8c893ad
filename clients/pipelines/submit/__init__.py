"""Scripts for ``spark-submit``, one for each pipeline: ``archive.py --config FILE.toml``.

They run as files, not as modules: their imports must be absolute.
"""

"""Archives topics as Parquet files by date and hour, each record once even after retries.

Only the log of the archive (:mod:`.log`) says which files belong to it; other files are ignored. A
commit adds files, or replaces many small files by a large one, in one atomic step.
"""

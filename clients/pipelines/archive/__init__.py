"""Topics as Parquet files by date and hour: each record once, whatever fails and is tried again.

Which files are part of the archive is in its log (``log``), and nowhere else: a file that the log
does not name does not count. A commit adds files, or replaces many small ones by a large one, in
one atomic step.
"""

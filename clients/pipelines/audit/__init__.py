"""Whether a topic and its archive, or its copy elsewhere, hold the same records.

Both sides are summed up by partition and interval first, where one number stands for all that is in
the records (``summaries``). Only intervals that differ are compared record by record
(``differences``).
"""

"""`qbus dump-log`: the contents of a log's files, and their problems."""

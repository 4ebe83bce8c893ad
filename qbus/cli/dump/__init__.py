"""`qbus dump-log`: what is in a log's files, and what is wrong with them."""

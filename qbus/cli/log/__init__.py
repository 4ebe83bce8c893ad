"""`qbus log`: work on the files of a broker that is stopped."""

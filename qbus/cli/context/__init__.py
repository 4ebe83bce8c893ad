"""`qbus context`: names clusters, and chooses one."""

"""`qbus acl`: who may do what."""

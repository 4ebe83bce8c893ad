"""`qbus cluster`: a cluster on this machine, and how a cluster is."""

"""`qbus cluster`: runs a cluster on this machine, and shows the status of any cluster."""

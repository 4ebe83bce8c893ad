"""`qbus mirror`: mirrors topics of other datacenters, shows the lag, copies group offsets."""

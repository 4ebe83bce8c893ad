"""`qbus.service`: what rooms share: locks, files, rates, back-off; the parts of daemons."""

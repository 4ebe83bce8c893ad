"""`qbus.service`: what the daemons (broker, agent, mirror) share."""

"""`qbus agent`: runs an agent, shows the status of agents, changes their configurations."""

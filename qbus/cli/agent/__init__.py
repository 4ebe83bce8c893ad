"""`qbus agent`: runs an agent, shows agents' status and files, edits their configuration."""

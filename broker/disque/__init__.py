"""Jobs over RESP: Disque's commands on a listener of their own."""

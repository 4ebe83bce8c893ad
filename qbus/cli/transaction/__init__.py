"""`qbus transaction`: shows and aborts transactions."""

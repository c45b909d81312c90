"""Where names are published and found: one module for each kind of rendezvous, and ``table`` with all of them."""

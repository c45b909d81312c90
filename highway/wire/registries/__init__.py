"""A rendezvous stores the address of each named end of a link. Each kind of rendezvous has a module; ``table`` lists the kinds."""

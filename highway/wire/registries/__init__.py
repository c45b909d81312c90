"""Publish and find addresses by name at a rendezvous. Each kind of rendezvous has a module; ``table`` lists the kinds."""

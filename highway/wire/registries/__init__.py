"""Publish and find names at a rendezvous. There is one module for each kind of rendezvous; ``table`` lists them."""

"""Hand-over to the frameworks that train; each is an optional dependency."""

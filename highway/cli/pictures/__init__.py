"""Pictures for people to look at: of streams, and of what transforms do. Begin with ``before_after``."""

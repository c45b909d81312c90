"""Pictures of streams and of transforms. Begin with ``before_after``."""

"""The commands that measure a topology, and estimate what a rate needs. Begin with ``bench``."""

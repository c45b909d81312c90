"""The commands that measure a topology, and estimate the resources that a rate requires. Begin with ``bench``."""

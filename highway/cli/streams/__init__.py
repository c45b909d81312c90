"""The commands for streams, tensorcom's among them: tensormon, tensorshow, tensorstat and the two servers. Begin with ``subscription``."""

"""The commands for streams, including tensorcom's: tensormon, tensorshow, tensorstat and the two servers. Begin with ``subscription``."""

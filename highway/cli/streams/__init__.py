"""The commands for streams, such as tensorcom's commands tensormon, tensorshow and tensorstat. Begin with ``subscription``."""

"""Where names are published and found, besides a folder: one module each, imported when it is chosen (:mod:`highway.wire.rendezvous`)."""

"""Commands to look at what travels over links, and to serve images: tensorcom's, under its names and options, and as ``highway COMMAND``.

Exit codes: 0 done, 1 failed (nothing came, a contract is broken, ...), 2 wrong usage, 130 interrupted.
"""

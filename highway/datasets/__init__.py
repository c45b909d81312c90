"""Where samples lie: folders of images, and tar shards, whose fields are encoded by their endings; and how files are written.

May use: engine, images, wire (its ``.ten`` codec). Begin with ``folder``.
"""

"""Links between processes: URLs, codecs, the two ends of a link, and the transports below them.

Begin with ``url`` (the settings of one end), then ``sender`` and ``receiver`` (the two ends, which number messages and report the end of
a stream) and ``codec`` (items to frames and back). ``transports`` carry the frames. ``connection`` is an end for a training loop.

May use: engine (stage, batch, cancel) and parameters; ``conversion`` imports ``adapters`` if a converter is given by name.
"""

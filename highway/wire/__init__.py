"""Links between processes: URLs, codecs, the two ends of a link, and the transports below them.

Begin with ``url`` (what one end is told), then ``sender`` and ``receiver`` (the ends, which number what passes and tell when a stream ends)
and ``codec`` (how items become frames); ``transports`` is what frames travel over. ``connection`` is an end for a training loop.

May use: engine (stage, batch, cancel) and parameters; ``conversion`` imports ``adapters`` for who names a converter.
"""

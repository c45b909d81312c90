"""Links between processes: URLs, codecs and sockets."""

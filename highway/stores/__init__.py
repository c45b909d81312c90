"""Read and write files by path or URL. A store's objects are read by ranges, concurrently, with retries and an optional cache.

Writes are atomic. May use: engine. Begin with ``file``, then ``remote``, ``requests`` and ``connecting``.

=============  =====================================================================================================================
module         purpose
=============  =====================================================================================================================
``file``       :func:`~highway.stores.file.open_file`: a file or object that is read by position and must not change during reading
``remote``     objects of a store as such files, and concurrent reads of many of them, or of parts of them ``listing``    the objects in a
folder of a store, optionally kept in a file ``copies``     a whole object or folder as local files, for libraries that need files
``streaming``  an object read from beginning to end, with read-ahead; and as Python's file objects ``writing``    files that are written
here, and uploaded to a store when they are complete ``url``        URLs and their options ``requests``   requests to one bucket: a limit in
flight, retries, hedging, counters ``connecting`` one client for each bucket: by obstore, or for other schemes by fsspec ``clients``    the
protocol of clients; ``obstore_client`` and ``fsspec_client`` are the implementations ``schemes``    the kinds of stores ``unchanging`` a
local file that must not change while it is read ``loop``       the thread of all requests ``cache``      blocks of objects on a local disk
=============  =====================================================================================================================
"""

"""Read and write files by path or URL. A store's objects are read by ranges, concurrently, with retries and an optional cache.

Writes are atomic. May use: engine. Begin with ``file``, then ``remote`` and ``requests``.

==============  =====================================================================================================================
module          purpose
==============  =====================================================================================================================
``file``        :func:`~highway.stores.file.open_file`: a file or object that is read by position and must not change during reading
``remote``      objects of a store as such files; concurrent reads of several objects, or of parts of objects
``listing``     the objects in a folder of a store; a file can keep the list
``copies``      copies of objects or folders as local files, for libraries that need files
``streaming``   an object that is read from beginning to end, with read-ahead
``writing``     files that are written here, and uploaded to a store when they are complete
``url``         URLs and their options
``requests``    requests to one bucket: a limit of requests in flight, retries, a second request if one is slow, counters, clients
``clients``     the protocol of clients; ``obstore_client`` and ``fsspec_client`` are the implementations
``schemes``     the kinds of stores
``unchanging``  a local file that must not change while it is read
``loop``        the thread that runs all requests
``cache``       blocks of objects on a local disk
==============  =====================================================================================================================
"""

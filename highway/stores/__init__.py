"""Read and write files by path or URL. A URL names an object in an object store, such as S3.

Ranges of objects are read concurrently, with retries and an optional cache. Writes are atomic. These modules may import ``engine``. Begin
with ``file``, then ``remote`` and ``requests``.

==============  =====================================================================================================================
module          purpose
==============  =====================================================================================================================
``file``        open a file or object, and read it by offset; an error is raised if it changes while it is read
``remote``      objects in a store; concurrent reads of several objects, or of parts of objects
``listing``     the objects in a folder of a store; a file can store the list
``copies``      copies of objects or folders as local files, for libraries that need files
``streaming``   read an object from beginning to end, with read-ahead
``writing``     write local files, and upload them to a store when they are complete
``url``         URLs and their options
``requests``    requests to one bucket: limits, retries, second requests for slow requests, counters
``clients``     the interface of clients, which ``obstore_client`` and ``fsspec_client`` implement
``schemes``     the kinds of stores
``unchanging``  a local file that must not change while it is read
``loop``        the thread that runs all requests
``cache``       a cache of blocks of objects, on a local disk
==============  =====================================================================================================================
"""

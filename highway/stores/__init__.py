"""Files by path or URL: on this machine as they are; in an object store by ranges, many at once, asked again, and cached if that is wanted;
and written whole or not at all.

May use: engine. Begin with ``file``, then ``remote``, ``requests`` and ``connecting``.

=============  =====================================================================================================================
module         what it is for
=============  =====================================================================================================================
``file``       :func:`~highway.stores.file.open_file`: a file that is read by position, wherever it is, and must not change meanwhile
``remote``     objects of a store as such files, and many of them, or parts of them, read at once
``listing``    what lies in a folder of a store, kept in a file if that is wanted
``copies``     a whole object or folder as files here, for libraries that take nothing else
``streaming``  an object read from its beginning to its end, ahead of who takes it; and as Python's file objects
``writing``    files that are filled here, and put into a store when they are whole
``url``        what a URL says, and what its options say
``requests``   requests to one bucket: so many in flight, asked again, hedged, counted
``connecting`` one client for each bucket: by obstore, or what it does not know by fsspec
``clients``    what a client does; ``obstore_client`` and ``fsspec_client`` are the two that there are
``schemes``    the kinds of stores
``unchanging`` a file on this machine that must not change while it is read
``loop``       the thread on which requests wait for their answers
``cache``      blocks of objects on a local disk
=============  =====================================================================================================================
"""

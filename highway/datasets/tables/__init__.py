"""Tables in columns: Parquet, Arrow and Hugging Face, read by row number, and how they are written.

May use what ``datasets`` may, and pyarrow, by ``backend`` alone, which the public classes import when they first read. Begin with
``dataset``, then ``values``.
"""

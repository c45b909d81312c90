"""Tables in columns: Parquet, Arrow and Hugging Face. Read them by row number, and write them.

May use the same rooms as ``datasets``, and pyarrow. Only ``backend`` imports pyarrow, on its first use. Begin with
``table``, then ``values``.
"""

"""Tables in columns: Parquet, Arrow and Hugging Face, read by row number, and how they are written.

May use the same rooms as ``datasets``, and pyarrow. Only ``backend`` imports pyarrow, on its first use. Begin with
``table``, then ``values``.
"""

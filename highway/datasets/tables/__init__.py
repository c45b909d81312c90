"""Tables in columns: Parquet, Arrow and Hugging Face, read by row number, and how they are written.

May use what ``datasets`` may, and pyarrow, by ``backend`` alone, which imports it when it is first used. Begin with
``table``, then ``values``.
"""

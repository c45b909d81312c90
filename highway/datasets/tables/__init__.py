"""Tables with columns: read the rows of Parquet files, Arrow files and Hugging Face tables, and write Parquet and Arrow files.

These modules may import the same packages as ``datasets``, and pyarrow. Only ``backend`` imports pyarrow, when pyarrow is first used. Begin
with ``table``, then ``values``.
"""

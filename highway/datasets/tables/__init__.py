"""Column tables: Parquet, Arrow and Hugging Face. Read their rows by index, and write Parquet and Arrow.

May use the same packages as ``datasets``, and pyarrow. Only ``backend`` imports pyarrow, on the first use. Begin with ``table``, then
``values``.
"""

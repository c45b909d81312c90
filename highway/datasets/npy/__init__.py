"""Arrays with one row per sample. ``rows`` reads ``.npy`` and ``.npz`` files, ``writer`` writes them, and ``zarr`` reads Zarr arrays."""

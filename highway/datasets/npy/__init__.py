"""Arrays with one row per sample. ``rows`` reads ``.npy`` and ``.npz``, ``writer`` writes both formats, and ``zarr`` reads Zarr arrays."""

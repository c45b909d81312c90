"""Arrays with a row for each sample, in ``.npy`` and ``.npz`` files: ``rows`` reads them, ``writer`` writes them."""

"""Hand-over to PyTorch: ``pip install 'highway-data[torch]'``.

Begin to read in ``loader``: the arguments of :class:`DataLoader`. ``iterators`` has one epoch of it, ``order`` the indices, ``worker`` what
a worker process adds to torch's, ``threads`` the worker threads, and ``device`` how batches get to a GPU.
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    from highway.errors import ConfigError
    from highway.extras import pip_install

    raise ConfigError(f"highway.adapters.torch needs torch: {pip_install('torch')}") from error

from highway.adapters.torch.collate import collate
from highway.adapters.torch.connection import TensorcomDataset
from highway.adapters.torch.device import to_device
from highway.adapters.torch.loader import DataLoader

__all__ = ["DataLoader", "TensorcomDataset", "collate", "to_device"]

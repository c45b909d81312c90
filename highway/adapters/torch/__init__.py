"""Hand-over to PyTorch: ``pip install 'highway-data[torch]'``.

Begin reading in ``loader``, which says what a :class:`DataLoader` takes; ``samples`` is what its workers do, ``loop`` one epoch of it,
``device`` how batches get to a GPU.
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    from highway.distribution import pip_install
    from highway.errors import ConfigError

    raise ConfigError(f"highway.adapters.torch needs torch: {pip_install('torch')}") from error

from highway.adapters.torch.collate import collate
from highway.adapters.torch.connection import TensorcomDataset
from highway.adapters.torch.device import to_device
from highway.adapters.torch.loader import DataLoader

__all__ = ["DataLoader", "TensorcomDataset", "collate", "to_device"]

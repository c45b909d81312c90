"""Pass batches to PyTorch: ``pip install 'highway-data[torch]'``.

Begin with ``loader``: the arguments of :class:`DataLoader`. ``iterators`` has one epoch of it, ``progress`` its state, ``order`` the
indices, ``worker`` the additions to torch's worker processes, ``slots`` their shared memory, ``threads`` the worker threads,
``device`` the transfer of batches to a GPU, and ``mesh`` the ranks of device meshes.
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
from highway.adapters.torch.mesh import peers, ranks

__all__ = ["DataLoader", "TensorcomDataset", "collate", "peers", "ranks", "to_device"]

"""Pass batches to PyTorch: ``pip install 'highway-data[torch]'``.

Begin reading with the module ``loader``, which defines :class:`DataLoader`. ``iterators`` runs one epoch of a loader. ``progress`` creates
the state of the loader. ``order`` counts the indices of the sampler. ``worker`` extends torch's worker processes. ``slots`` provides shared
memory for these processes. ``threads`` runs the worker threads. ``device`` copies batches to a GPU. ``common_end`` ends the loops of all
ranks together. ``mesh`` finds the data parallel ranks in a device mesh.
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

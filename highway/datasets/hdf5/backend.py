"""Import h5py, or raise an error that explains how to install h5py. The module also contains the lock for all calls to h5py.

Without this lock, h5py crashed when several threads read one file at once (h5py issue 2920). A fork waits until no thread calls h5py.
Otherwise, h5py could be unusable in the child process.
"""

import os
import threading

from highway.errors import ConfigError
from highway.extras import pip_install

try:
    import h5py
except ImportError as error:
    raise ConfigError(f"HDF5 files need h5py: {pip_install('hdf5')}") from error

__all__ = ["LOCK", "h5py"]

LOCK = threading.Lock()
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)

from .decoded_cache import DecodedCache as DecodedCache
from .folder import Files as Files
from .folder import ImageFolder as ImageFolder
from .mixing.mixed import MixedDataset as MixedDataset
from .npy.rows import Npy as Npy
from .npy.rows import Npz as Npz
from .tar import Tar as Tar
from .ten import TenFiles as TenFiles

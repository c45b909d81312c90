from .decoded_cache import DecodedCache as DecodedCache
from .folder import Files as Files
from .folder import ImageFolder as ImageFolder
from .npy import Npy as Npy
from .npy import Npz as Npz
from .tar import Tar as Tar
from .ten import TenFiles as TenFiles

from .checking import check as check
from .loading import load as load
from .loading import load_checked as load_checked
from .model import Topology as Topology

"""Write the public names of tensorpack and tensorcom, and the parameters of augmentors, as JSON: ``python names.py > names.json``."""

import ast
import importlib.util
import inspect
import json
from pathlib import Path


def public(module):
    """Return the names that a module exports, and that are of tensorpack."""
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return sorted(name for name in set(names) if getattr(getattr(module, name), "__module__", "").startswith("tensorpack"))


def exported(package):
    """Return what the modules of a package export by ``__all__``, without importing them: ``input_source`` needs TensorFlow."""
    (folder,) = importlib.util.find_spec("tensorpack").submodule_search_locations
    assigned = (
        one for path in Path(folder, package).glob("*.py") for one in ast.parse(path.read_text()).body if isinstance(one, ast.Assign)
    )
    return sorted(name for one in assigned if ast.unparse(one.targets[0]) == "__all__" for name in ast.literal_eval(one.value))


def parameters(augmentor):
    return sorted(set(inspect.signature(augmentor.__init__).parameters) - {"self", "args", "kwargs"})


def installed(package):
    """Return whether a package is installed; a folder of this name that is no package does not count."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def names():
    """Return the names of those of the packages that are installed."""
    found = {}
    if installed("tensorpack"):
        from tensorpack import dataflow
        from tensorpack.dataflow import dataset, imgaug

        modules = {"dataflow": dataflow, "imgaug": imgaug, "dataset": dataset}
        augmentors = {name: getattr(imgaug, name) for name in public(imgaug)}
        found["names"] = {name: public(module) for name, module in modules.items()} | {"input_source": exported("input_source")}
        found["parameters"] = {name: parameters(one) for name, one in augmentors.items() if inspect.isclass(one)}
    if installed("tensorcom"):
        from tensorcom import tenbin, zcom

        found["tensorcom"] = sorted(name for module in (tenbin, zcom) for name in vars(module) if is_own(module, name))
    return found


def is_own(module, name):
    value = getattr(module, name)
    return not name.startswith("_") and not inspect.ismodule(value) and getattr(value, "__module__", module.__name__) == module.__name__


if __name__ == "__main__":
    print(json.dumps(names(), indent=1))

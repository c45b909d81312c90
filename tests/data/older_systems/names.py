"""Write the public names of tensorpack and tensorcom, and the parameters of augmentors, as JSON: ``python names.py > names.json``."""

import importlib.util
import inspect
import json

from tensorpack import dataflow
from tensorpack.dataflow import dataset, imgaug

MODULES = {"dataflow": dataflow, "imgaug": imgaug, "dataset": dataset}
if importlib.util.find_spec("tensorflow"):  # which the inputs of training need
    from tensorpack import input_source

    MODULES["input_source"] = input_source


def public(module):
    """Return the names that a module exports, and that are of tensorpack."""
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    return sorted(name for name in set(names) if getattr(getattr(module, name), "__module__", "").startswith("tensorpack"))


def parameters(augmentor):
    return sorted(set(inspect.signature(augmentor.__init__).parameters) - {"self", "args", "kwargs"})


def names():
    augmentors = {name: getattr(imgaug, name) for name in public(imgaug)}
    of_classes = {name: parameters(one) for name, one in augmentors.items() if inspect.isclass(one)}
    found = {"names": {name: public(module) for name, module in MODULES.items()}, "parameters": of_classes}
    if importlib.util.find_spec("tensorcom"):
        from tensorcom import tenbin, zcom

        found["tensorcom"] = sorted(name for module in (tenbin, zcom) for name in vars(module) if is_own(module, name))
    return found


def is_own(module, name):
    value = getattr(module, name)
    return not name.startswith("_") and not inspect.ismodule(value) and getattr(value, "__module__", module.__name__) == module.__name__


if __name__ == "__main__":
    print(json.dumps(names(), indent=1))

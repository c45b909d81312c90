"""The reference: each public name has an example that runs as the site shows it, and explains each of its parameters."""

import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from without_operators import torchvision_without_operators

from highway.errors import ConfigError
from highway.parameters import docstrings
from highway.parameters.hints import readable_parameters

PAGES_FILE = Path(__file__).parents[1] / "docs" / "pages.py"
spec = importlib.util.spec_from_file_location("pages", PAGES_FILE)
PAGES = importlib.util.module_from_spec(spec)
spec.loader.exec_module(PAGES)

# Warnings of another library are no errors. Each example of Ray starts Ray: one after another, and not beside the adapter's tests.
OTHERS = (pytest.mark.filterwarnings("default"),)
RAY = (*OTHERS, pytest.mark.xdist_group("ray"))


def public_names():
    for module in (module for modules in PAGES.PUBLIC.values() for module in modules):
        for name in PAGES.names_of(module):
            if "adapters" in module or not PAGES.is_value(getattr(importlib.import_module(module), name)):
                marks = RAY if module == "highway.adapters.ray" else OTHERS if "adapters" in module else ()
                yield pytest.param(module, name, id=f"{module}.{name}", marks=marks)


def imported(module, name):
    """Return a public name; skip the test if the package that it needs is not installed."""
    try:
        return getattr(importlib.import_module(module), name)
    except ConfigError as error:
        pytest.skip(str(error))


class Runner(doctest.DocTestRunner):
    """Runs an example, and skips the test if the example needs a package that is not installed."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        error = exc_info[1]
        if isinstance(error, ImportError) or (isinstance(error, ConfigError) and "pip install" in str(error)):
            pytest.skip(str(error))
        super().report_unexpected_exception(out, test, example, exc_info)


@pytest.mark.parametrize(("module", "name"), list(public_names()))
def test_the_example_of_a_public_name_runs(module, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "TorchvisionV2" and importlib.util.find_spec("torchvision"):
        torchvision_without_operators()
    text = inspect.cleandoc(imported(module, name).__doc__ or "")
    if shared := re.search(r"see the example of :func:`(\w+)`", text):
        text = inspect.cleandoc(imported(module, shared[1]).__doc__)
    text = PAGES.runnable(text, module)
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "example"}, name, None, 0)
    assert re.search(rf"\b{name}\b", "".join(example.source for example in test.examples if "import" not in example.source))
    report = []
    Runner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=report.append)
    assert "".join(report) == ""


MODULES = sorted({case.values[0] for case in public_names()})


@pytest.mark.parametrize("module", [pytest.param(one, marks=OTHERS if "adapters" in one else ()) for one in MODULES])
def test_each_parameter_of_a_public_name_is_explained(module):
    unexplained = []
    for name in (case.values[1] for case in public_names() if case.values[0] == module):
        found = imported(module, name)
        if not getattr(found, "_is_protocol", False):  # which is not called
            explained = docstrings.parameters(found)
            unexplained += [f"{name}: {parameter}" for parameter in readable_parameters(found) if parameter not in explained]
    assert unexplained == []

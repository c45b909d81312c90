"""Who may import whom (docs/adr/0001): the walls between the rooms."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "highway"
FILES = sorted(ROOT.rglob("*.py"))

FOUNDATION = {
    "_jpeg",
    "backend",
    "distribution",
    "docstrings",
    "errors",
    "cancel",
    "batch",
    "stage",
    "parameters",
    "place",
    "cgroup",
    "columns",
    "interrupt",
    "cores",
    "data",
    "randomness",
    "renamed",
    "spline",
}
MAY_IMPORT = {
    "distribution": set(),
    "docstrings": set(),
    "errors": {"distribution"},
    "backend": {"errors"},
    "cancel": {"errors"},
    "place": {"errors"},
    "parameters": {"errors", "place", "renamed"},
    "cgroup": set(),
    "columns": set(),
    "interrupt": set(),
    "script_interrupt": {"interrupt"},
    "cores": {"cgroup"},
    "randomness": set(),
    "renamed": set(),
    "spline": set(),
    "data": {"errors"},
    "batch": set(),
    "stage": {"errors", "parameters"},
    "channel": {"errors", "stage"},
    "notebook": set(),
    "stats": {"columns", "notebook", "stage"},
    "script": {"interrupt", "script_interrupt"},
    "workers": {"batch", "cancel", "channel", "cores", "errors", "randomness", "stage", "stats"},
    "threads": {"channel", "cores", "errors", "script", "stage", "stats", "workers"},
    "engine": {"cancel", "errors", "renamed", "notebook", "script", "stage", "stats", "threads", "topology"},
    "functional": {"transforms", *FOUNDATION},
    "transforms": {"functional", *FOUNDATION},
    "wire": FOUNDATION,
    "tenbin": {"wire"},
    "modules": {"transforms", "functional", "wire", *FOUNDATION},
    "components": {"modules", "transforms", *FOUNDATION},
    "registry": {"components", *FOUNDATION},
    "topology": {"components", "registry", "engine", "stats", "wire", *FOUNDATION},
}
BESIDES = {  # components that consist of pipelines
    "modules/inner.py": {"engine"},
    "modules/passes.py": {"engine"},
    "modules/child.py": {"engine"},
}
ONLY_IN = {
    "zmq": {"wire/base.py", "wire/socket.py", "wire/monitor.py", "wire/context.py"},
    "threading": {
        "topology/process.py",
        "cancel.py",
        "channel.py",
        "script.py",
        "threads.py",
        "workers.py",
        "wire/abandoned.py",
        "wire/leave.py",
        "wire/pausable.py",
        "wire/shm/same_thread.py",
    },
    "yaml": {"registry.py", "topology"},
    "msgspec": {"parameters.py", "registry.py", "topology"},
}


def imports(path):
    """Yield ``(module, line)`` of each import, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [f"highway.{alias.name}" for alias in node.names] if node.module == "highway" else [node.module]
            yield from ((name, node.lineno) for name in names)


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_its_room_may(path):
    allowed = MAY_IMPORT.get(room(path))
    if allowed is None:  # cli, tools, adapters and the public list stand on top and see everything
        return
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == "highway" and len(parts) > 1 and parts[1] != room(path):
            besides = BESIDES.get(str(path.relative_to(ROOT)), set())
            assert parts[1] in allowed | besides, f"{path.relative_to(ROOT)}:{line}: {room(path)} must not import {parts[1]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_zmq_threads_and_yaml_stay_in_their_rooms(path):
    place = str(path.relative_to(ROOT))
    for name, line in imports(path):
        where = ONLY_IN.get(name.split(".")[0])
        if where is not None:
            assert any(place.startswith(allowed) for allowed in where), f"{place}:{line}: {name} belongs in {', '.join(sorted(where))}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_short(path):
    assert len(path.read_text().splitlines()) <= 320, "two modules?"

"""The rooms and the walls between them (docs/adr/0001): who may import whom, and how large a room and a module are."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from highway.run.launchers.table import ENGINES
from highway.stores.schemes import STORES
from highway.wire.registries.table import KINDS as RENDEZVOUS
from highway.wire.transports.table import TRANSPORTS
from highway.wire.url import KINDS, SCHEMES

ROOT = Path(__file__).parents[1] / "highway"
FILES = sorted(ROOT.rglob("*.py"))
LONGEST = 400
LARGEST = 24  # modules of a room

GROUND = {  # single files that all may use
    "errors",
    "distribution",
    "extras",
    "redacted",
    "renamed",
    "old_names",
    "mistakes",
    "passport",
    "lazy",
    "columns",
    "data",
    "safe_text",
}
ROOMS = {  # what each may import besides; what is not here stands on top and sees everything
    "process": set(),
    "parameters": set(),
    "engine": {"parameters", "process"},
    "images": {"engine", "parameters", "process"},
    "functional": {"images"},
    "transforms": {"functional", "images", "parameters"},
    "wire": {"engine", "parameters", "process"},
    "tenbin": {"wire"},
    "children": {"engine", "parameters", "process", "wire"},
    "stores": {"engine", "parameters", "process"},
    "datasets": {"engine", "images", "parameters", "process", "stores", "wire"},
    "reading": {"datasets", "engine", "images", "parameters", "process", "stores", "transforms"},
    "modules": {
        "children",
        "datasets",
        "engine",
        "functional",
        "images",
        "parameters",
        "process",
        "reading",
        "stores",
        "transforms",
        "wire",
    },
    "topology": {"datasets", "engine", "modules", "parameters", "process", "transforms", "wire"},
    "observe": {"engine", "images", "parameters", "process", "topology", "wire"},
    "run": {"engine", "images", "observe", "parameters", "process", "topology", "wire"},
}
BESIDES = {  # each is said in the file, and why
    "engine/pipeline.py": {"children", "observe", "topology"},  # Pipeline(isolated=True), Pipeline().dashboard(), Pipeline.from_yaml
    "wire/connection.py": {"adapters"},  # Connection.to_dataset()
    "wire/conversion.py": {"adapters"},  # converters="torch"
}
ONLY_IN = {
    "zmq": {"wire/transports/zmq"},
    "threading": {
        "adapters/jax.py",  # a wait of JAX has no time limit
        "adapters/keras.py",
        "adapters/tensorflow.py",
        "adapters/torch/probe.py",
        "adapters/torch/slots.py",  # torch itself receives and sends on threads of its own
        "children/isolated.py",
        "children/isolated_child.py",
        "children/peers.py",
        "children/receiving.py",
        "datasets/hdf5/backend.py",
        "datasets/keyed/leveldb.py",
        "datasets/keyed/shared.py",
        "datasets/opened.py",
        "datasets/tables/pieces.py",
        "engine/context.py",
        "engine/channel.py",
        "engine/bodies.py",
        "engine/consumer.py",
        "engine/script.py",
        "engine/threads.py",
        "engine/time_limit.py",
        "engine/running.py",
        "images/scratch.py",
        "observe/endpoint.py",
        "process/signals.py",
        "process/threads.py",
        "process/torch_generators.py",
        "run/launchers/ray_agent.py",
        "stores/cache.py",
        "stores/copies.py",
        "stores/loop.py",
        "wire/abandoned.py",
        "wire/confirmation.py",  # one thread hears receivers, and another one reads what they have confirmed
        "wire/goodbye.py",
        "wire/pausable.py",
        "wire/registries/relay.py",
        "wire/rendezvous.py",
        "wire/transports/shm/same_thread.py",
        "wire/transports/zmq/context.py",
    },
    "yaml": {"topology"},
    "pickle": {  # what loads data that others wrote is datasets/records/trusted_pickle.py, and only if the user says so
        "children",
        "datasets/classification/plain_pickle.py",
        "datasets/records/trusted_pickle.py",
    },
    "msgspec": {
        "datasets/detection/coco",
        "datasets/detection/masks.py",
        "datasets/mds",
        "observe/calibration.py",
        "observe/snapshot.py",
        "observe/state.py",
        "parameters/convert.py",
        "run/folder.py",
        "run/job.py",
        "run/launchers/slurm.py",
        "run/remote.py",
        "run/report.py",
        "topology",
    },
}


def name(path):
    return str(path.relative_to(ROOT))


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def import_statements(path):
    """Return the import statements of a file, those inside functions too."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path):
    """Yield ``(module, line)`` of each import, those inside functions too."""
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        else:
            names = [f"highway.{alias.name}" for alias in node.names] if node.module == "highway" else [node.module]
            yield from ((name, node.lineno) for name in names)


def walls_broken(path):
    """Yield what a module imports through a wall."""
    here = room(path)
    allowed = set() if here in GROUND else ROOMS.get(here)
    if allowed is None:  # cli, adapters and the public list
        return
    for imported, line in imports(path):
        parts = imported.split(".")
        if parts[0] == "highway" and len(parts) > 1 and parts[1] not in {here} | allowed | GROUND | BESIDES.get(name(path), set()):
            yield f"{name(path)}:{line}: {here} must not import {parts[1]}"


def test_a_module_imports_only_what_its_room_may():
    assert [broken for path in FILES for broken in walls_broken(path)] == []


MODULES = {".".join(("highway", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path for path in FILES}


def modules_imported(path):
    """Return the modules of highway that a file imports, inside functions and for type hints too."""
    found = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            found |= {name if (name := f"{node.module}.{alias.name}") in MODULES else node.module for alias in node.names}
    return found & set(MODULES)


def test_no_file_imports_one_that_imports_it():
    besides = {module: BESIDES.get(name(path), set()) for module, path in MODULES.items()}
    imported = {module: modules_imported(path) - {module, "highway"} for module, path in MODULES.items()}
    graph = {module: {other for other in found if room(MODULES[other]) not in besides[module]} for module, found in imported.items()}
    while ends := [name for name, imported in graph.items() if not imported or all(name not in other for other in graph.values())]:
        graph = {name: imported - set(ends) for name, imported in graph.items() if name not in ends}
    assert graph == {}, "these files import each other"


def test_the_engine_reads_from_top_to_bottom():
    """Each of its modules uses only those before it in the list that the docstring of the room gives."""
    listed = re.findall(r"``(\w+)``", ast.get_docstring(ast.parse((ROOT / "engine" / "__init__.py").read_text())))
    uses = {name: set() for name in listed}
    for module, path in MODULES.items():
        if module.startswith("highway.engine."):
            used = {other.split(".")[2] for other in modules_imported(path) if other.startswith("highway.engine.")}
            uses.setdefault(module.split(".")[2], set()).update(used)
    assert list(uses) == listed, "the docstring lacks modules"
    assert {name: later for name in listed if (later := uses[name] - set(listed[: listed.index(name) + 1]))} == {}


def test_no_room_leads_back_to_itself():
    def above(start, seen=()):
        assert start not in seen, f"a circle: {' > '.join([*seen, start])}"
        for other in ROOMS.get(start, ()):
            above(other, (*seen, start))

    for start in ROOMS:
        above(start)


MAP = (ROOT.parent / "docs" / "explanation" / "map.md").read_text()


def test_the_map_shows_what_each_room_may_import():
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\w, ]*)\|$", MAP, re.M)
    assert {room: set(re.findall(r"\w+", imported)) for room, imported in rows} == ROOMS
    for number, (room, _) in enumerate(rows):  # each below those that import it
        assert ROOMS[room] <= {below for below, _ in rows[:number]}


def test_the_path_of_a_sample_leads_through_files_that_are_there():
    on_path = [ROOT / path for path in re.findall(r"`([\w/]+\.py)`", MAP.split("## The path of a sample")[1])]
    assert [name(path) for path in on_path if not path.exists()] == []
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    not_passed = folders - {room(path) for path in on_path}
    assert not_passed == {"children", "cli", "data"}  # pipelines in other processes, and nothing that a sample passes


def test_zmq_threads_and_yaml_stay_in_their_rooms():
    found = [(name(path), line, imported) for path in FILES for imported, line in imports(path)]
    strays = [
        f"{path}:{line}: {imported} belongs in {', '.join(sorted(where))}"
        for path, line, imported in found
        if (where := ONLY_IN.get(imported.split(".")[0])) and not path.startswith(tuple(where))
    ]
    assert strays == []


def test_what_is_computed_here_is_not_left_to_a_library_that_happens_to_be_installed():
    others = {"scipy", "sklearn", "pycocotools", "graphviz", "pydot"}
    assert [f"{name(path)}:{line}" for path in FILES for imported, line in imports(path) if imported.split(".")[0] in others] == []


def test_no_other_module_lets_a_library_load_pickles():
    unsafe = ("allow_pickle=True", "recv_pyobj", "weights_only=False", "cloudpickle.load")
    found = {name(path) for path in FILES if any(text in path.read_text() for text in unsafe)}
    assert found == {"datasets/records/trusted_pickle.py"}


def test_a_module_is_short():
    lengths = {name(path): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}, "two modules?"


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name)
def test_a_room_is_small_and_says_what_it_holds(folder):
    assert len(list(folder.glob("*.py"))) <= LARGEST, "two rooms?"
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


def compared(path):
    """Yield each text that a file compares with something, and the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += [node.value] if isinstance(node, ast.MatchValue) else []
        for constant in (each for part in parts for each in getattr(part, "elts", [part]) if isinstance(each, ast.Constant)):
            yield constant.value, constant.lineno


def test_nobody_compares_the_names_of_transports_engines_rendezvous_stores_and_sockets():
    tables = {**TRANSPORTS, **ENGINES, **RENDEZVOUS, **STORES, **KINDS, **SCHEMES}
    assert [f"{name(path)}:{line}: {text!r}" for path in FILES for text, line in compared(path) if text in tables] == []


def test_no_name_stands_for_two_public_things():
    names = Counter(
        node.name
        for path in FILES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not sorted(name for name, count in names.items() if count > 1)


ABOVE = [path for path in FILES if name(path).startswith("run/") and "launchers" not in path.parts and name(path) != "run/remote.py"]


@pytest.mark.parametrize("path", ABOVE, ids=name)  # remote runs, on another host, what was launched from here
def test_what_is_above_a_launcher_knows_no_particular_one(path):
    found = {imported for imported, _ in imports(path)}
    assert not any(one == "subprocess" or one.startswith("highway.run.launchers") for one in found)


TESTS = Path(__file__).parent
PUBLIC = {"_exit", "_replace", "_repr_html_", "_is_protocol"}  # Python and IPython document these names, or have no public one
PUBLIC |= {"_internal"}  # torch.testing._internal has the only process group that needs no other process
PRIVATE_ELSEWHERE = {  # of libraries that have no public name for it
    "adapters/test_torch_slots.py": {"_saved_other", "_version"},
    "oracles/test_small_sets.py": {"_check_integrity"},
    "oracles/test_transforms_policies.py": {
        "_AUGMENTATION_SPACE",
        "_PARTIAL_AUGMENTATION_SPACE",
        "_apply_image_or_video_transform",
        "_fill",
        "_policies",
    },
    "ports/test_ported_vision.py": {"_SAMPLE_SHUFFLE_INITIAL", "_SAMPLE_SHUFFLE_SIZE"},  # of open_clip
}
BY_TEXT = {"getattr", "hasattr", "setattr", "delattr", "attrgetter"}


def names_used(node):
    """Return the names by which a node reads, sets or imports something of another object or module."""
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return ".".join([getattr(node, "module", None) or "", *(alias.name for alias in node.names)]).split(".")
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in BY_TEXT:
        parts = [part for text in node.args[:2] for part in getattr(text, "values", [text])]  # of an f-string, too
        texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        return ".".join(texts).split(".")
    return []


def names_defined(node):
    """Return the names that a node gives to a function, class or variable, or to an attribute of its own class."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and getattr(node.value, "id", "") == "self":
        return [node.attr]
    return []


def private_names(path):
    """Return the private names of other files that a file of tests uses."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    used = {name for node in nodes for name in names_used(node) if re.match(r"_(?!_)\w", name)}
    return used - {name for node in nodes for name in names_defined(node)} - PUBLIC


def test_tests_read_and_patch_no_private_names():
    found = {str(path.relative_to(TESTS)): names for path in sorted(TESTS.rglob("*.py")) if (names := private_names(path))}
    assert found == PRIVATE_ELSEWHERE


def test_no_two_files_of_tests_have_the_same_name():
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []  # pytest would take the one for the other

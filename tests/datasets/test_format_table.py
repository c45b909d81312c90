"""The contract of every format in the table: what its record says is true, and what is derived from it agrees with it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import highway
from highway import Pipeline, modules
from highway.datasets import ImageFolder, Parquet, Tar
from highway.datasets.format import Place, load
from highway.datasets.formats import by_suffix, formats
from highway.datasets.opening import recognised
from highway.datasets.tables.writers import parquet_writer
from highway.distribution import version_of
from highway.errors import ConfigError
from highway.modules import ImageFileReader, ImageReader, Reader

ROOT = Path(__file__).parents[2]
VALUES = {  # of each kind of value: the name of the field, and what may stand in it
    "bytes": ("bin", [b"\x00\xff", b"more", b"\x80"]),
    "str": ("txt", ["one", "zwölf", "three"]),
    "number": ("cls", [np.int32(7), np.int32(-1), np.int32(2**31 - 1)]),
    "array": ("x", [np.full((2, 3), number, np.float32) for number in range(3)]),
    "json": ("json", [{"a": [number, 0.5, "b"]} for number in range(3)]),
}
KEYS = ["a", "b/c", "d"]


def installed(row):
    return row.extra is None or version_of(row.extra.package)


def cases():
    for row in formats().values():
        mark = pytest.mark.skipif(not installed(row), reason=f"{row.name} needs a package")
        for kind in VALUES if row.writer and row.name != "folder" else ():
            yield pytest.param(row, kind, id=f"{row.name}-{kind}", marks=mark)


def path_of(row, folder):
    return str(folder / ("a" + "".join(row.suffixes[:1])))


def write(row, path, kind, count=3):
    field, values = VALUES[kind]
    for key, value in list(zip(KEYS, values, strict=True))[:count]:
        where = path
        if row.layout == "each":
            Path(path).mkdir(exist_ok=True)
            where = f"{path}/{key.replace('/', '-')}.ten"
            with row.write(where, {}) as writer:
                writer.add(key, {field: value})
    if row.layout != "each":
        with row.write(path, {}) as writer:
            for key, value in list(zip(KEYS, values, strict=True))[:count]:
                writer.add(key, {field: value})


def value_of(sample):
    """Return the one value of a sample; a ``.npy`` file has no name for it."""
    if not isinstance(sample, dict):
        return sample
    (value,) = sample.values()
    return value


CASES = list(cases())


@pytest.mark.parametrize(("row", "kind"), CASES)
def test_a_format_holds_the_kinds_of_values_that_its_record_names_and_refuses_others(row, kind, tmp_path):
    path = path_of(row, tmp_path)
    if kind not in row.kinds:
        with pytest.raises((TypeError, ValueError)) as caught:
            write(row, path, kind)
        assert VALUES[kind][0] in str(caught.value)
        return
    write(row, path, kind)
    dataset = highway.open(path, row.name)
    assert len(dataset) == 3 and (not row.keeps_keys or list(dataset.keys) == KEYS or row.layout == "each")
    for number, expected in enumerate(VALUES[kind][1]):
        found = value_of(dataset[number])
        np.testing.assert_array_equal(found, expected)
        if isinstance(expected, np.generic):
            assert np.ndim(found) == 0 and found.dtype == expected.dtype
        else:
            assert isinstance(found, type(expected)) and (kind != "array" or found.dtype == expected.dtype)


ROWS = [case for case in CASES if case.values[1] == "array"]


@pytest.mark.parametrize(("row", "_kind"), ROWS)
def test_a_written_format_is_recognised_and_read_with_one_fingerprint_until_it_changes(row, _kind, tmp_path):
    path, bare = path_of(row, tmp_path), str(tmp_path / "bare")
    kind = "array" if "array" in row.kinds else row.kinds[0]
    write(row, path, kind)
    assert recognised([path])[0] is row
    first, second = (highway.open(path, row.name).fingerprint() for _ in range(2))
    write(row, str(tmp_path / "other"), kind, count=2)
    assert first == second != highway.open(str(tmp_path / "other"), row.name).fingerprint()
    with Pipeline([Reader(path, epochs=1, shuffle=False)]) as pipeline:
        samples = [value_of(item[0] if isinstance(item, tuple) else item) for item in pipeline]
    np.testing.assert_array_equal(np.stack(samples), np.stack(VALUES[kind][1]))
    Path(path).rename(bare)
    if row.magic or row.inside or row.is_at:
        assert recognised([bare])[0] is row and len(highway.open(bare)) == 3


def test_what_a_record_names_is_there():
    for row in formats().values():
        assert row.recognised_by or row.is_name or row.name == "coco", row.name
        assert not row.sink or hasattr(modules, row.sink), row.name
        assert not row.source or hasattr(modules, row.source), row.name
        assert all(callable(load(name)) for name in (row.dataset, row.writer, row.key) if name), row.name
        assert hasattr(highway.datasets, load(row.dataset).__name__), row.name
        assert all(by_suffix([f"a{suffix}"]) is row for suffix in row.suffixes), row.name
        assert set(row.kinds) <= set(VALUES) and bool(row.kinds) == (row.name != "folder"), row.name


def test_every_dataset_of_files_is_in_the_table():
    loaded = {"FashionMNIST", "ImageFolder", "MixedDataset"}  # rows of other datasets, and no format
    assert {load(row.dataset).__name__ for row in formats().values()} == set(highway.datasets.__all__) - loaded


def test_the_extras_of_the_distribution_are_those_of_the_table():
    pytest.importorskip("setuptools", reason="since Python 3.12 an environment has none of its own")
    text = """
import json, runpy, setuptools
setuptools.setup = lambda **given: print(json.dumps(given["extras_require"]))
runpy.run_path("setup.py")
"""
    found = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    extras = {row.extra for row in formats().values() if row.extra}
    assert {extra.name: [extra.requirement] for extra in extras}.items() <= json.loads(found).items()


def anchor(dataset):
    for page in ("formats-images.md", "formats-records.md"):
        for title in re.findall(r"^## (.+)$", (ROOT / "docs/howto" / page).read_text(), re.M):
            if re.search(rf"\b{dataset}\b", title, re.I) or (dataset, title) == ("HuggingFace", "Hugging Face"):
                return f"[`{dataset}`]({page}#{title.lower().replace(' ', '-')})"
    return f"`{dataset}`"


def test_the_tables_in_the_docs_are_those_of_the_formats():
    text = (ROOT / "docs/howto/formats.md").read_text()
    read = [["format", "dataset", "install", "recognised by", "to know"], ["---"] * 5]
    written = [["format", "sink", "writer", "values"], ["---"] * 4]
    for row in formats().values():
        by = row.recognised_by
        paths = " ".join(f"`{one}`" for one in by.split(" ")) if "*" in by else by
        install = f"`{row.extra.name}`" if row.extra else ""
        about = "; ".join(filter(None, (row.about.partition("; --")[0], row.note)))
        read.append([f"`{row.name}`", anchor(load(row.dataset).__name__), install, paths, about])
        if row.writer:
            sink, writer = (f"`{one}`" if one else "" for one in (row.sink, row.writer.partition(":")[2]))
            written.append([f"`{row.name}`", sink, writer, ", ".join(row.kinds) or "an image and a label"])
    for table in (read, written):
        lines = ("|---" * len(row) + "|" if row[0] == "---" else "| " + " | ".join(row) + " |" for row in table)
        expected = "\n".join(lines).replace("|  |", "| |").replace("|  |", "| |")
        missing = [line for line in expected.splitlines() if line not in text]
        ways = "a row has a link once its section is in formats-images.md or formats-records.md"
        assert not missing, f"add to the table in docs/howto/formats.md ({ways}): {missing}"
        assert expected in text, f"docs/howto/formats.md should have this table:\n{expected}"


def photos(folder, count=3):
    with parquet_writer(str(folder / "photos.parquet")) as writer:
        source = ImageFolder("highway:photos/val")
        for number in range(count):
            data, label = source[number]
            writer.add(source.keys[number], {"image": data, "label": label})
    return str(folder / "photos.parquet")


@pytest.mark.parametrize("named", ["photos.parquet", "", "*.parquet"])
def test_readers_of_images_read_any_format_by_its_path(named, tmp_path):
    photos(tmp_path)
    with Pipeline([ImageFileReader(str(tmp_path / named), 3, (16, 16), epochs=1, shuffle=False)]) as pipeline:
        ((images, labels),) = pipeline
    assert images.shape == (3, 16, 16, 3) and labels.tolist() == [0, 0, 0]
    with Pipeline([ImageReader(str(tmp_path / named), 3, (16, 16), epochs=1, shuffle=False)]) as pipeline:
        ((same,),) = pipeline
    np.testing.assert_array_equal(same, images)


def test_a_folder_of_images_stays_one_whatever_else_lies_in_it(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.jpg").write_bytes(ImageFolder("highway:photos/val")[0][0])
    photos(tmp_path)
    (tmp_path / "index.json").write_text("{}")
    assert ImageFileReader(str(tmp_path), 1, (8, 8)).open() == ImageFolder(str(tmp_path))
    assert ImageFileReader(str(tmp_path / "nowhere"), 1, (8, 8)).open() == ImageFolder(str(tmp_path / "nowhere"))


def test_open_takes_the_parameters_of_the_dataset(tmp_path):
    path = photos(tmp_path)
    assert highway.open(path, fields={"data": "image"}) == Parquet(path, {"data": "image"})
    assert list(highway.open(path, fields={"data": "image"})[0]) == ["data"]
    assert len(highway.open([path, path])) == 6
    assert highway.open("highway:photos/val") == ImageFolder(highway.data.resolve_data_dir("highway:photos/val"))
    with pytest.raises((TypeError, ConfigError), match="colour"):
        highway.open(path, colour=1)


def test_what_cannot_be_opened_is_an_error_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.bin").write_bytes(b"hello, world, and more")
    (tmp_path / "photos.tar.gz").write_bytes(b"\x1f\x8b")
    for path, error, words in [
        ("nowhere.parquet", FileNotFoundError, "'nowhere.parquet': there is no such file or folder (the current directory is "),
        ("notes.bin", ConfigError, "notes.bin: the format of a file that begins with b'hello, world, an' cannot be determined"),
        (
            "photos.tar.gz",
            ConfigError,
            "photos.tar.gz: found WebDataset shards that can only be read sequentially; use WebDataset",
        ),
    ]:
        with pytest.raises(error, match=re.escape(words)):
            highway.open(path)
        with pytest.raises(error, match=re.escape(words)), Pipeline([Reader(path)]) as pipeline:
            next(iter(pipeline))
    with pytest.raises(ConfigError, match="there is no format 'parket'; did you mean parquet"):
        highway.open("a", format="parket")
    with pytest.raises(ConfigError, match="the format of a file that begins with"):
        Pipeline([ImageReader("notes.bin", 1, (8, 8))]).dequeue()


def test_a_place_is_described(tmp_path):
    for name in "abcdefg":
        (tmp_path / name).touch()
    assert Place(str(tmp_path)).described() == "a folder with 'a', 'b', 'c', 'd', 'e', ..."
    assert Place(str(tmp_path / "a")).described() == "nothing in it"


def test_shards_are_opened_by_number(tmp_path):
    with formats()["shards"].write(str(tmp_path / "a.tar"), {}) as writer:
        writer.add("a", {"txt": "one"})
    assert highway.open(str(tmp_path / "a.tar")) == Tar(str(tmp_path / "a.tar"))


PLUGIN = """
from dataclasses import dataclass
from highway.datasets.format import Format

@dataclass
class Lines:
    path: str
    def __post_init__(self):
        with open(self.path) as file:
            self.lines = file.read().splitlines()
    def __len__(self):
        return len(self.lines)
    def __getitem__(self, number):
        return self.lines[number]

lines = Format("lines", "a text with a sample in each line", "lines_plugin:Lines", suffixes=(".lines",), kinds=("str",))
npz = Format("npz", "taken", "lines_plugin:Lines")
"""


def plugin(folder, entry):
    (folder / "lines_plugin.py").write_text(PLUGIN)
    (folder / "lines-1.dist-info").mkdir(exist_ok=True)
    (folder / "lines-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lines\nVersion: 1\n")
    (folder / "lines-1.dist-info" / "entry_points.txt").write_text(f"[highway.formats]\nlines = {entry}\n")
    (folder / "a.lines").write_text("one\ntwo\n")


def run(folder, text):
    text = f"import sys; sys.path.insert(0, {str(folder)!r}); {text}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=folder)


@pytest.mark.slow
def test_a_package_adds_a_format_by_an_entry_point(tmp_path):
    plugin(tmp_path, "lines_plugin:lines")
    text = "import highway; from highway.modules import Reader; print(*highway.Pipeline([Reader('a.lines', shuffle=False, epochs=1)]))"
    found = run(tmp_path, text)
    assert (found.returncode, found.stdout) == (0, "one two\n"), found.stderr
    found = run(tmp_path, "from highway.cli import main; sys.exit(main(['convert', 'a.lines', 'b.parquet', '--check']))")
    assert found.returncode == 0 and "2 samples written" in found.stdout, found.stderr


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("lines_plugin:nothing", "the entry point lines = lines_plugin:nothing of highway.formats cannot be loaded: AttributeError"),
        ("lines_plugin:Lines", "the entry point lines = lines_plugin:Lines of highway.formats: expected a Format, found <class"),
        ("lines_plugin:npz", "the entry point lines = lines_plugin:npz of highway.formats: a format 'npz' already exists"),
    ],
)
def test_a_broken_entry_point_is_an_error_that_names_it(entry, words, tmp_path):
    plugin(tmp_path, entry)
    assert words in run(tmp_path, "import highway; highway.open('a.lines')").stderr

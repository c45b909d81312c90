"""Listings that are kept: in the folder itself, here, or elsewhere in a store."""

import gzip
import json
import re
import time

import pytest

from highway.datasets import Files, ImageFolder
from highway.errors import DatasetError, StoreError
from highway.stores.listing import keys_in, listing_of


@pytest.fixture
def folder(store):
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        store.put("bucket", f"train/{name}", name.encode())
    return "s3://bucket/train"


def listings(store):
    return sum("list-type" in path for _, path, _, _ in store.asked)


@pytest.mark.parametrize("place", [".listing.gz", "s3://other/lists/train.gz", "{tmp}/lists/train.gz"])
def test_a_kept_listing_saves_asking(store, folder, tmp_path, place):
    store.put("other", "x", b"")
    url = f"{folder}?listing={place.format(tmp=tmp_path)}"
    dataset = ImageFolder(url)
    assert dataset.keys == ["a/1.png", "a/2.png", "b/1.png"] and dataset[1] == (b"a/2.png", 0)
    asked = listings(store)
    again = ImageFolder(url)
    assert again.keys == dataset.keys and again[2] == (b"b/1.png", 1) and again.fingerprint() == dataset.fingerprint()
    assert listings(store) == asked


def test_it_is_made_anew_when_it_is_old_or_that_is_said(store, folder, tmp_path):
    place = tmp_path / "l.gz"
    assert len(ImageFolder(f"{folder}?listing={place}")) == 3
    store.put("bucket", "train/b/2.png", b"new")
    assert len(ImageFolder(f"{folder}?listing={place}")) == 3
    assert len(ImageFolder(f"{folder}?listing={place}&listing_hours=0")) == 4
    assert len(ImageFolder(f"{folder}?listing={place}")) == 4
    store.put("bucket", "train/b/3.png", b"new")
    found = json.loads(gzip.decompress(place.read_bytes()))
    found["made"] = time.time() - 2 * 3600
    place.write_bytes(gzip.compress(json.dumps(found).encode()))
    assert len(ImageFolder(f"{folder}?listing={place}")) == 4
    assert len(ImageFolder(f"{folder}?listing={place}&listing_hours=1.5")) == 5


def test_what_has_changed_or_gone_since_is_noticed_when_it_is_read(store, folder, tmp_path):
    url = f"{folder}?listing={tmp_path}/l.gz"
    len(ImageFolder(url))
    store.put("bucket", "train/a/1.png", b"other")
    del store.objects["bucket", "train/a/2.png"]
    dataset = ImageFolder(url)
    with pytest.raises(
        DatasetError, match=r"a/1\.png: the object has changed from 7 to 5 bytes since it was first listed or read; .* \?listing_hours=0"
    ):
        dataset[0]
    with pytest.raises(
        FileNotFoundError, match=r"a/2\.png: no such object .*; the object existed when the folder was listed at .*listing_hours=0"
    ):
        dataset[1]


def test_one_of_another_folder_or_kind_is_made_anew(store, folder, tmp_path):
    store.put("bucket", "val/a/9.png", b"")
    store.put("bucket", "train/top.png", b"")
    place = f"{tmp_path}/l.gz"
    assert len(ImageFolder(f"{folder}?listing={place}")) == 3
    assert ImageFolder(f"s3://bucket/val?listing={place}").keys == ["a/9.png"]
    assert Files(f"{folder}?listing={place}").keys == ["top.png"]


@pytest.mark.parametrize("content", [b"", b"nothing", b"{}", b"[1]", b'{"version": 9'], ids=["empty", "text", "dict", "list", "cut"])
def test_what_is_no_listing_is_named(folder, tmp_path, content):
    (tmp_path / "l.gz").write_bytes(gzip.compress(content) if content[:1] in (b"{", b"[") else content)
    with pytest.raises(
        DatasetError, match=r"l\.gz: the listing is damaged or truncated .*; remove it, or choose another place with \?listing="
    ):
        len(ImageFolder(f"{folder}?listing={tmp_path}/l.gz"))


def test_a_place_that_cannot_be_written_to_is_an_error(store, folder):
    store.forbidden.add("train/.listing.gz")
    with pytest.raises(PermissionError, match=r"train/\.listing\.gz: the store refuses access"):
        len(ImageFolder(f"{folder}?listing=.listing.gz"))


def test_who_may_not_list_is_told_so(store, folder):
    store.lists = False
    with pytest.raises(PermissionError, match=r"s3://bucket/train: the store refuses access"):
        len(ImageFolder(folder))


def test_a_server_that_cannot_list_is_read_by_a_listing_in_the_folder(store, folder):
    len(ImageFolder(f"{folder}?listing=list.gz"))
    web = ImageFolder(f"{store.url}/bucket/train?listing=list.gz&listing_hours=0")
    assert web.keys == ["a/1.png", "a/2.png", "b/1.png"] and web[1] == (b"a/2.png", 0)


def test_folders_of_a_folder_are_listed_at_the_same_time_and_page_by_page(store):
    for folder in range(20):
        for number in range(12):
            store.put("bucket", f"{folder:02}/{number:02}.png", b"")
    store.expect_together(4, of="prefix=")
    listing = listing_of("s3://bucket")
    assert listing.keys == [f"{folder:02}/{number:02}.png" for folder in range(20) for number in range(12)]
    assert store.most_in_flight >= 4 and listings(store) == 5 + 20 * 4  # the last of each asks what follows the end


# --- listings that are not true ---

PAGE = "<!DOCTYPE html><html><body>Please log in</body></html>"
ERROR = "<?xml version='1.0'?><Error><Code>InternalError</Code><Message>We encountered an internal error</Message></Error>"


@pytest.fixture
def labelled(store):
    """Three labels, with 20 images each: four pages."""
    for label in ("cat", "dog", "fox"):
        for number in range(20):
            store.put("bucket", f"train/{label}/{number:02}.png", b"")
    return "s3://bucket/train?attempts=2"


@pytest.mark.parametrize("answer", [PAGE, ERROR, ""], ids=["page", "error", "empty"])
def test_a_folder_whose_listing_is_no_listing_is_an_error_and_does_not_shift_labels(store, labelled, answer):
    store.listed = lambda query, body: answer if query["prefix"] == "train/cat/" else body
    with pytest.raises(StoreError, match=r"s3://bucket/train/cat: 2 attempts failed; the last error: "):
        len(ImageFolder(labelled))


@pytest.mark.parametrize("answer", [PAGE, ERROR], ids=["page", "error"])
@pytest.mark.parametrize("place", ["dog/04.png", "dog/14.png"])
def test_a_page_of_a_listing_that_is_no_listing_is_an_error(store, labelled, answer, place):
    store.listed = lambda query, body: answer if query.get("continuation-token") == f"train/{place}" else body
    with pytest.raises(
        StoreError,
        match=r"s3://bucket/train/dog: 2 attempts failed; the last error: the listing is incomplete: "
        r"'train/dog/",
    ):
        len(ImageFolder(labelled))


def test_a_listing_that_says_there_is_more_but_not_how_to_ask_for_it_is_an_error(store, labelled):
    store.listed = lambda query, body: re.sub("<NextContinuationToken>.*</NextContinuationToken>", "", body)
    with pytest.raises(
        StoreError, match=r"s3://bucket/train/\w+: .*: the listing is incomplete: 'train/\w+/05\.png' exists, but is not listed"
    ):
        len(ImageFolder(labelled))


@pytest.fixture(params=["az://bucket/train", "abfs://bucket/train"])
def azure(request, store, labelled, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", store.url)
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    return f"{request.param}?attempts=2"


def test_azure_is_listed_page_by_page(azure):
    assert ImageFolder(azure).keys == [f"{label}/{number:02}.png" for label in ("cat", "dog", "fox") for number in range(20)]


def test_a_listing_of_azure_that_ends_early_is_an_error(store, azure):
    store.listed = lambda query, body: body if "startFrom" in query else re.sub("<NextMarker>.*</NextMarker>", "", body)
    with pytest.raises(StoreError, match=r"train/\w+: .*: the listing is incomplete: 'train/\w+/05\.png' exists, but is not listed"):
        len(ImageFolder(azure))


@pytest.mark.parametrize("answer", [PAGE, ERROR, ""], ids=["page", "error", "empty"])
@pytest.mark.parametrize("marker", [None, "train/dog/04.png"])
def test_a_listing_of_azure_that_is_no_listing_is_an_error(store, azure, answer, marker):
    store.listed = lambda query, body: answer if (query["prefix"], query.get("marker")) == ("train/dog/", marker) else body
    with pytest.raises(StoreError, match=r"train/dog: 2 attempts failed; the last error: "):
        len(ImageFolder(azure))


def test_a_server_of_azure_that_cannot_begin_a_listing_after_a_key_is_listed_without_the_check(store, azure):
    store.listed = lambda query, body: None if "startFrom" in query else body
    assert len(ImageFolder(azure)) == 60


def test_folders_that_a_listing_leaves_out_at_its_end_are_an_error(store):
    for label in "abcdefgh":
        store.put("bucket", f"train/{label}/0.png", b"")
    store.listed = lambda query, body: re.sub("<NextContinuationToken>.*</NextContinuationToken>", "", body)
    with pytest.raises(StoreError, match=r"s3://bucket/train: .*: the listing is incomplete: 'train/f/0\.png' exists, but is not listed"):
        len(ImageFolder("s3://bucket/train?attempts=2"))
    with pytest.raises(StoreError, match=r"s3://bucket/train: .*: the listing is incomplete"):
        keys_in("s3://bucket/train?attempts=2", below=False)


def test_keys_that_come_twice_are_an_error(store, labelled):
    overlap = "<Contents><Key>train/cat/04.png</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>0</Size></Contents>"
    store.listed = lambda query, body: (
        body.replace("<Contents>", f"{overlap}<Contents>", 1) if "cat/04" in query.get("continuation-token", "") else body
    )
    with pytest.raises(StoreError, match=r"train/cat: 2 attempts failed; the last error: the listing contains 'train/cat/04\.png' twice"):
        len(ImageFolder(labelled))


def test_keys_of_another_folder_are_an_error(store, labelled):
    store.listed = lambda query, body: body.replace("train/cat/", "train/dog/") if query["prefix"] == "train/cat/" else body
    with pytest.raises(StoreError, match=r"train/cat: .*: the listing contains 'train/dog/00\.png', which is not in this folder"):
        len(ImageFolder(labelled))


def test_a_listing_that_is_wrong_once_is_asked_for_again(store, labelled):
    wrong = [PAGE]
    store.listed = lambda query, body: wrong.pop() if wrong and query["prefix"] == "train/cat/" else body
    assert len(ImageFolder(labelled)) == 60


def test_keys_are_listed_whatever_their_letters(store):
    keys = ["a b/0.png", "é/0.png", "é/%2F.png", "日本/😀.png", "zz/~.png"]
    for key in keys:
        store.put("bucket", f"train/{key}", b"")
    assert sorted(listing_of("s3://bucket/train").keys) == sorted(keys)


def test_a_kept_listing_with_a_key_twice_is_an_error(folder, tmp_path):
    place = tmp_path / "l.gz"
    len(ImageFolder(f"{folder}?listing={place}"))
    found = json.loads(gzip.decompress(place.read_bytes()))
    found["keys"][1] = found["keys"][0]
    place.write_bytes(gzip.compress(json.dumps(found).encode()))
    with pytest.raises(DatasetError, match=r"l\.gz: the listing is damaged or truncated \(version 1, 2 different keys of 3, 3 states\)"):
        len(ImageFolder(f"{folder}?listing={place}"))


def test_a_label_without_images_is_an_error_in_a_store_as_on_a_disk(store, labelled):
    store.put("bucket", "train/cow/", b"")  # as the console of S3 makes an empty folder
    with pytest.raises(
        StoreError,
        match=r"s3://bucket/train/cow: .* the listing of this folder is empty: remove the folder if it is "
        r"empty",
    ):
        len(ImageFolder(labelled))

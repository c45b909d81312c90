"""What URLs of stores say, and what of them is shown."""

import socket
from itertools import product

import pytest

from highway.datasets import ImageFolder, Parquet, Tar, TFRecord
from highway.errors import ConfigError
from highway.modules import Reader
from highway.redacted import without_secrets
from highway.stores.file import fingerprint_of
from highway.stores.url import StoreOptions, beside, is_url, join, parse, shown, without_options


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.delenv("HIGHWAY_CACHE_DIR", raising=False)
    monkeypatch.delenv("HIGHWAY_CACHE_GB", raising=False)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://b/k", True),
        ("memory://k", True),
        ("https://host/a.tar?x=1", True),
        ("file:///data/a.tar", False),
        ("/data/a.tar", False),
        ("data/s3://b", False),
        ("pipe:curl https://host/a.tar", False),
    ],
)
def test_a_url_is_told_from_a_path(path, expected):
    assert is_url(path) is expected


def test_a_url_names_bucket_and_key():
    url = parse("s3://bucket/train/a b%20.jpg")
    assert (url.root, url.key, url.bucket, str(url)) == ("s3://bucket", "train/a b%20.jpg", "s3://bucket", "s3://bucket/train/a b%20.jpg")
    assert url.options == StoreOptions()
    assert (
        str(parse("s3://bucket/train/") / "a/b.jpg") == "s3://bucket/train/a/b.jpg" and str(parse("s3://bucket") / "b") == "s3://bucket/b"
    )


def test_keys_behind_http_are_quoted_in_the_url_alone():
    url = parse("https://host:81/d/y%20z.png?token=abc&requests=3")
    assert (url.key, url.query, url.root, url.options.requests) == ("d/y z.png", "token=abc", "https://host:81/?token=abc", 3)
    assert str(url) == "https://host:81/d/y%20z.png" and url.full == "https://host:81/d/y%20z.png?token=abc"


def test_options_stand_in_the_query_and_the_environment_says_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("HIGHWAY_CACHE_DIR", "/nvme")
    monkeypatch.setenv("HIGHWAY_CACHE_GB", "2.5")
    assert parse("s3://b/k").options == StoreOptions(cache_dir="/nvme", cache_gb=2.5)
    options = parse("s3://b/k?cache_dir=/a%20b&cache_gb=0.5&listing=l.gz&listing_hours=0&requests=9&attempts=2&timeout=1.5&hedge=0").options
    assert options == StoreOptions("/a b", 0.5, "l.gz", 0.0, 9, 2, 1.5, 0.0)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://b/k?cache_dri=/x", r"'s3://b/k': unknown option 'cache_dri'; did you mean cache_dir\?"),
        ("s3://b/k?cache_gb=lots", r"'s3://b/k': cache_gb='lots'; expected a number of gigabytes, at least 0.001"),
        ("s3://b/k?requests=0", r"'s3://b/k': requests='0'; expected a whole number, at least 1"),
        ("zip://a.jpg::s3://b/x.zip", r"chains of URLs with '::', as in fsspec, are not supported"),
        ("s3:///k", r"'s3:///k': no bucket after '://'"),
        ("https://?token=secret", r"'https://': no host after '://'"),
    ],
)
def test_what_cannot_be_used_as_written_is_named(url, message):
    with pytest.raises(ConfigError, match=message):
        parse(url)


def test_what_the_environment_says_wrong_is_named(monkeypatch):
    monkeypatch.setenv("HIGHWAY_CACHE_GB", "big")
    with pytest.raises(ConfigError, match=r"in the environment: HIGHWAY_CACHE_GB='big'; expected a number of gigabytes"):
        parse("s3://b/k")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open https://me:secret@host/a.tar?token=abc now", "open https://host/a.tar now"),
        ("https://token@host/a", "https://host/a"),
        ("ftp://me:secret@host/a", "ftp://host/a"),
        ("Tar(paths='https://h/a.tar?sig=x', fields=None)", "Tar(paths='https://h/a.tar', fields=None)"),
        ("hf://datasets/me/data@main/a", "hf://datasets/me/data@main/a"),
        ("abfs://container@account/a", "abfs://container@account/a"),
        ("no URL, user:password@host?", "no URL, user:password@host?"),
    ],
)
def test_passwords_and_tokens_are_not_shown(text, expected):
    assert without_secrets(text) == expected


def test_names_are_joined_before_the_query():
    assert join("s3://b/d?cache_gb=1", "a b.jpg") == "s3://b/d/a b.jpg?cache_gb=1"
    assert join("https://h/d/?t=1", "a b.jpg") == "https://h/d/a%20b.jpg?t=1"
    assert join("data", "a b.jpg") == "data/a b.jpg"
    assert beside("s3://b/a.tar?cache_gb=1", ".index") == "s3://b/a.tar.index?cache_gb=1" and beside("a.tar", ".index") == "a.tar.index"
    assert without_options("s3://b/a.tar?cache_gb=1") == "s3://b/a.tar" and without_options("why?.tar") == "why?.tar"
    assert shown("https://u:p@h/a?t=1") == "https://h/a" and shown("why?.tar") == "why?.tar"
    assert repr(parse("https://u:p@h/a?t=1")) == "StoreURL('https://h/a')"


def test_a_fingerprint_stays_when_a_token_changes(store):
    store.put("b", "a.bin", b"x")
    first, second, other = (
        fingerprint_of([(url, url)]) for url in (f"{store.url}/b/a.bin?t=1", f"{store.url}/b/a.bin?t=2", "s3://b/a.bin")
    )
    assert first == second != other
    store.put("b", "a.bin", b"y")
    assert fingerprint_of([(f"{store.url}/b/a.bin", f"{store.url}/b/a.bin")]) != first


URLS = [
    "http://me:s3cret@HOST/a.tar?attempts=1",
    "https://me:s3cret@/a.tar?attempts=1",
    "s3://me:s3cret@",
    "s3://me:s3cret@bucket/a.tar?attempts=1",
    "http://s3cret@HOST/a.tar?attempts=1",
    "http://:s3cret@HOST/a.tar?attempts=1",
    "http://HOST/a.tar?attempts=1&token=s3cret",
    "http://me:s3cret/x@HOST/a.tar",
    "http://me:s3cret?x@HOST/a.tar",
    "http://me:s3cret#x@HOST/a.tar",
    "http://me:a's3cret@HOST/a.tar?attempts=1",
    'http://me:a"s3cret@HOST/a.tar?attempts=1',
    "http://me@x:s3cret@HOST/a.tar?attempts=1",
    "http://me:s3cret@[::1/a.tar",
    "http://me:s3cret@127.0.0.1:99999/a.tar?attempts=1",
    "http://me:s3cret@HOST/a.tar?attempts=zero",
    "http:/me:s3cret@HOST/a.tar",
    "http//me:s3cret@HOST/a.tar",
    "1http://me:s3cret@HOST/a.tar",
    "nothing://me:s3cret@HOST/a.tar",
]


@pytest.mark.parametrize(("kind", "url"), [*product([ImageFolder, Parquet, TFRecord], URLS), *((Tar, url) for url in URLS if is_url(url))])
def test_neither_a_dataset_nor_its_errors_show_a_password(url, kind, monkeypatch):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        host = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
        made = []
        with pytest.raises(Exception) as caught:  # of any type: nobody answers
            len(made.append(kind(url.replace("HOST", host))) or made[0])
    told = [*map(repr, made), *(repr(Reader(dataset, 2)) for dataset in made), str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert "s3cret" not in "".join(told)


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/image@2x.png",
        "s3://bucket/a:b@c.png",
        "a/b:c@d.png",
        "me@host",
        "tcp://host:5555, and then me@host",
        "a // b: c @ d",
    ],
)
def test_what_is_no_password_is_shown(text):
    assert without_secrets(text) == text

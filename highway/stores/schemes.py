"""The table of all kinds of object stores. Only this module compares the schemes of URLs (such as ``s3``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Store:
    """A kind of object store.

    Args:
        schemes: The schemes of the store's URLs.
        first: What the part after ``://`` is called in messages, such as ``bucket``. Empty: this part can be missing.
        by_obstore: Whether the library obstore supports the store. ``False``: the library fsspec is used.
        is_http: Whether the store is a web server, which is read-only. In its URLs, keys are quoted, and there can be a query and a user.
        credentials: Advice for error messages if the store denies access.
        endpoint: For messages: the environment variables that set the address of the store.
        endpoints: The environment variables that can set the address of the store.
        lists_in_order: Whether listings are sorted, so that a listing can begin after a key.
        shows_parts: Whether other processes can see a file before the file is complete.
        is_here: Whether the store is in the memory of this process.
    """

    schemes: tuple[str, ...] = ()
    first: str = ""
    by_obstore: bool = False
    is_http: bool = False
    credentials: str = "check the credentials"
    endpoint: str = ""
    endpoints: tuple[str, ...] = ()
    lists_in_order: bool = False
    shows_parts: bool = False
    is_here: bool = False

    @property
    def address(self) -> tuple[str, str]:
        """The environment variable that sets the address of the store, and the address. Both are empty if no variable is set."""
        return next(((name, found) for name in self.endpoints if (found := os.environ.get(name))), ("", ""))


_S3 = (
    "set the credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (`aws configure export-credentials --format env` prints those of a "
    "profile), or AWS_SKIP_SIGNATURE=true for a public bucket"
)
_GS = "set the credentials by GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for a public bucket"
_AZ = "set the credentials by AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true for a public container"
_AZ_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_HTTP = "put user and password before the host, or a token into the query"

_STORES = (
    Store(
        ("s3", "s3a"),
        "bucket",
        True,
        credentials=_S3,
        endpoint="AWS_ENDPOINT_URL and AWS_REGION",
        endpoints=("AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        lists_in_order=True,
    ),
    Store(("gs",), "bucket", True, credentials=_GS, lists_in_order=True),
    Store(("az",), "bucket", True, credentials=_AZ, endpoints=_AZ_ENDPOINTS, lists_in_order=True),
    Store(("abfs", "abfss"), by_obstore=True, endpoints=_AZ_ENDPOINTS, lists_in_order=True),
    Store(("http", "https"), "host", True, is_http=True, credentials=_HTTP),
    Store(("memory",), is_here=True),
    Store(("ftp", "sftp", "ssh", "smb", "hdfs", "webhdfs"), shows_parts=True),
)
STORES: Mapping[str, Store] = {scheme: store for store in _STORES for scheme in store.schemes}
"""The kind of store of each scheme. For other schemes, it is :data:`OTHER`."""

OTHER = Store()
"""The kind of store for schemes that are not in :data:`STORES`. fsspec might support these schemes."""

OBSTORE = [scheme for scheme, store in STORES.items() if store.by_obstore]
"""The schemes of the stores that obstore supports."""


def store_of(scheme: str) -> Store:
    """Return the kind of store of a scheme."""
    return STORES.get(scheme, OTHER)

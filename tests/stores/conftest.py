"""A store on loopback for each test, and what the environment says of it."""

import pytest
from object_store import serving


@pytest.fixture
def store(monkeypatch):
    with serving() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key-id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-key")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setattr("highway.stores.requests.LEAST_HEDGE", 60)  # a busy machine is slow, too
        yield store

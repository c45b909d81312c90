"""Hashes of values and code. States and caches compare them to detect changes."""

from highway.engine.hashing.bounded import Hashed as Hashed
from highway.engine.hashing.bounded import UnknownValueError as UnknownValueError
from highway.engine.hashing.code import name_and_version as name_and_version
from highway.engine.hashing.values import Hasher as Hasher

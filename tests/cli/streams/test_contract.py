import json

import numpy as np
import pytest

from highway import ConfigError
from highway.cli.streams.contract import compare, load, to_contract
from highway.observe.summary import Summary


def summed(*items, batched=True):
    summary = Summary(batched)
    for item in items:
        summary.add(item)
    return summary


def batch(seed=0, scale=1.0, shift=0.0, dtype=np.float32, shape=(64, 4, 3)):
    return (np.random.default_rng(seed).standard_normal(shape) * scale + shift).astype(dtype)


@pytest.fixture
def reference(tmp_path):
    """A contract that went through a file."""

    def make(summary):
        path = tmp_path / "ref.json"
        path.write_text(json.dumps(to_contract(summary), allow_nan=False))
        return load(str(path))

    return make


def broken(found, contract, tolerance=0.25):
    return [check.text for check in compare(found, contract, tolerance) if not check.ok]


def test_a_stream_keeps_its_own_contract_exactly(reference):
    summary = summed((batch(), np.arange(64, dtype=np.int32)))
    assert broken(summary, reference(summary), tolerance=0) == []


def test_another_draw_of_the_same_data_keeps_it_and_a_smaller_last_batch_does(reference):
    contract = reference(summed((batch(0),)))
    assert broken(summed((batch(1),), (batch(2, shape=(3, 4, 3)),)), contract) == []


@pytest.mark.parametrize(
    ("item", "what"),
    [
        (batch(1, shift=1), "mean"),
        (batch(1, scale=2), "std"),
        (batch(1, scale=0.5), "std"),
        (np.concatenate([batch(1), np.full((1, 4, 3), 9, np.float32)]), "max"),
        (np.concatenate([batch(1), np.full((1, 4, 3), -9, np.float32)]), "min"),
        (batch(1, dtype=np.float64), "dtype float64; expected float32"),
        (batch(1, shape=(64, 3, 4)), "sample shape 3x4; expected 4x3"),
        (np.where(np.arange(64)[:, None, None] == 0, np.nan, batch(1)).astype(np.float32), "nan 1.562%"),
        (np.where(np.arange(64)[:, None, None] == 0, np.inf, batch(1)).astype(np.float32), "inf 1.562%"),
        (np.full((64, 4, 3), np.nan, np.float32), "0 finite values; expected some"),
    ],
)
def test_what_changed_is_found_and_named(reference, item, what):
    texts = broken(summed((item,)), reference(summed((batch(),))))
    assert any(text.startswith(f"field 0: {what}") for text in texts), texts


def test_fields_that_are_missing_or_new_are_found(reference):
    contract = reference(summed({"image": batch(), "label": batch()}))
    assert broken(summed({"image": batch(), "mask": batch()}), contract) == [
        "field label: missing; the stream has image, mask",
        "field mask: not in the contract, which has image, label",
    ]


def test_a_larger_tolerance_lets_more_pass(reference):
    contract = reference(summed((batch(),)))
    assert broken(summed((batch(shift=0.4),)), contract) != []
    assert broken(summed((batch(shift=0.4),)), contract, tolerance=0.5) == []


def test_constants_may_differ_by_rounding_alone(reference):
    contract = reference(summed((np.full((2, 2), 1e6, np.float32),)))
    assert broken(summed((np.full((2, 2), 1e6 + 0.0625, np.float32),)), contract) == []
    assert len(broken(summed((np.full((2, 2), 1e6 + 100, np.float32),)), contract)) == 2


def test_a_field_of_nan_alone_has_a_contract_too(reference):
    nothing = summed((np.full((2, 2), np.nan, np.float32),))
    assert broken(nothing, reference(nothing)) == []
    assert broken(summed((batch(shape=(2, 2)),)), reference(nothing)) == ["field 0: 4 finite values; expected none"]


def test_too_many_shapes_to_list_mean_any_shape(reference):
    many = summed(*((np.zeros(n, np.float32),) for n in range(1, 30)), batched=False)
    assert broken(summed((np.zeros(77, np.float32),), batched=False), reference(many)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "no contract of version 1"),
        ('{"highway": "contract", "version": 2}', "no contract of version 1"),
        ('{"highway": "contract", "version": 1, "batched": true}', "fields is None"),
        ('{"highway": "contract", "version": 1, "batched": true, "fields": {"0": 3}}', "field 0: dtypes is None"),
        ('{"highway": "contract", "version": 1, "batched": true, "fields": {"0": {"dtypes": [], "shapes": [], "min": "x"}}}', "min is 'x'"),
        ('{"highway": "contract", "version": 1, "batched": true, "fields": {"0": {"dtypes": [], "shapes": [], "min": NaN}}}', "min is nan"),
        ('{"highway": "contract", "version": 1, "fields": {}}', "batched is None"),
    ],
)
def test_a_file_that_is_no_contract_is_refused(tmp_path, text, message):
    path = tmp_path / "ref.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"ref\.json: .*{message}"):
        load(str(path))


def test_a_missing_contract_is_refused_with_the_way_to_make_one(tmp_path):
    with pytest.raises(ConfigError, match=r"No such file.*tensorstat --save"):
        load(str(tmp_path / "ref.json"))

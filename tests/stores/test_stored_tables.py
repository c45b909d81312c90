"""How Parquet is asked for in a store; tests/stores/test_formats.py tests what comes back."""

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from highway import Pipeline
from highway.datasets import Parquet
from highway.modules import Reader

N = 200
TABLE = pa.table({"x": np.arange(N), "text": [f"row {number}" for number in range(N)], "other": np.random.default_rng(0).normal(size=N)})


def test_a_row_group_takes_one_request_for_each_of_its_columns_that_are_wanted_and_a_footer_one(store, tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=25)
    store.upload("tables", tmp_path)
    dataset = Parquet("s3://tables/a.parquet", fields={"x": "x", "text": "text"})
    assert len(dataset) == N and (store.count("HEAD"), store.count("GET")) == (1, 1)
    assert dataset[30]["text"] == "row 30" and store.count("GET") == 3
    assert [sample["x"] for sample in dataset.__getitems__(range(25, 50))] == list(range(25, 50))
    assert (store.count("HEAD"), store.count("GET")) == (1, 3)


def test_an_epoch_takes_no_more_requests_than_row_groups_have_columns(store, tmp_path):
    for part in range(5):
        pq.write_table(TABLE.slice(part * 40, 40), tmp_path / f"part-{part}.parquet", row_group_size=10)
    store.upload("tables", tmp_path)
    dataset = Parquet("s3://tables/part-*.parquet", fields={"x": "x"}, key="text")
    assert len(dataset) == N
    store.expect_together(4)
    assert dataset.keys[0] == "row 0" and store.most_in_flight == 4
    store.expect_together(2)
    with Pipeline([Reader(dataset, 16, shuffle="blocks", window=40, epochs=1, num_workers=3)]) as pipeline:
        found = [(batch["x"].tolist(), passport.keys) for batch, passport in pipeline.stamped()]
    numbers = [number for numbers, _ in found for number in numbers]
    assert sorted(numbers) == list(range(N)) and [f"row {number}" for number in numbers] == [key for _, keys in found for key in keys]
    listed = sum("list-type" in one[1] for one in store.asked)
    assert store.count("HEAD") == 5 and store.count("GET") - listed == 5 + 20 + 20  # footers, keys, and what is read
    assert store.most_in_flight > 1


def test_a_folder_in_a_store_is_read_with_all_below_it_and_the_names_of_its_folders(store, tmp_path):
    for part, name in enumerate(["label=0/a.parquet", "label=0/_b.parquet", "label=1/C.PARQUET", "label=1/_old/d.parquet"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE.slice(part * 2, 2), tmp_path / name)
    store.upload("tables", tmp_path, "t/")
    fields = {"x": "x", "label": "label"}
    expected = [{"x": 0, "label": 0}, {"x": 1, "label": 0}, {"x": 4, "label": 1}, {"x": 5, "label": 1}]
    assert list(Parquet("s3://tables/t", fields=fields)) == expected
    assert list(Parquet(["s3://tables/t/label=0/a*", "s3://tables/t/label=1/C*"], fields=fields)) == expected

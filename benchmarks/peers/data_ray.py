"""Ray Data: ``PYTHON data_ray.py JOB TIMES WORKERS``, tasks in a Ray of its own on this machine, and a consumer.

The images are decoded by highway's decoder, at the boxes of the table, a batch a task.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from scaling import record
from worker import Job

HERE = str(Path(__file__).parent)


class Decoder:
    """A map of Ray Data: rows of the table to images. Each process loads the table once."""

    def __init__(self, folder: str) -> None:
        from seam import decoder

        self._decode = decoder(Job.load(Path(folder)))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        images = [self._decode(number)[0] for number in batch["item"].tolist()]
        return {"image": np.stack(images), "number": batch["item"]}


def main(folder: str, times: str, workers: int) -> None:
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    job = Job.load(Path(folder))
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])}}
    ray.init(num_cpus=workers + 1, include_dashboard=False, logging_level="ERROR", log_to_driver=False, runtime_env=environment)
    ray.data.DataContext.get_current().enable_progress_bars = False
    numbers = ray.data.from_items(list(range(len(job.files))), override_num_blocks=max(workers, len(job.files) // job.batch))
    images = numbers.map_batches(Decoder, fn_constructor_args=[folder], batch_size=job.batch, concurrency=workers)
    record(times, (len(rows["image"]) for rows in images.iter_batches(batch_size=job.batch, batch_format="numpy")))
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

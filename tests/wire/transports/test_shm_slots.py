"""The pool of shared-memory slots of a sender."""

import numpy as np
import pytest

from highway.wire.transports.shm.slots import Pool

MB = 1 << 20


@pytest.mark.parametrize("most", [3, 64])
def test_slots_never_exceed_the_budget_or_the_number_and_a_free_pool_has_room(most):
    rng = np.random.default_rng(most)
    pool = Pool(4 * MB, most)
    used, made = [], []
    for _ in range(400):
        nbytes = int(rng.integers(1, 2 * MB))
        if (slot := pool.reuse(nbytes)) is None and (slot := pool.make(nbytes)) is not None:
            made.append(slot)
        if slot is None:
            assert used, "nothing is in use, so there is room for any message of up to half of the budget"
            pool.put(used.pop(int(rng.integers(len(used)))))
        else:
            assert nbytes <= slot.size
            used.append(slot)
        kept = [slot for slot in made if slot.number not in pool.dropped]
        assert sum(slot.size for slot in kept) <= 4 * MB and len(kept) <= most
    assert len(pool.dropped) > 20
    for slot in used:
        pool.put(slot)
    pool.close()
    assert sorted(pool.dropped) == list(range(len(made)))

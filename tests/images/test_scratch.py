from threading import Thread

import numpy as np

from highway.images.scratch import scratch


def test_memory_of_one_name_is_used_again_and_grows():
    small, same, large = (
        scratch("test", shape, dtype) for shape, dtype in (((3, 4), np.float32), ((48,), np.uint8), ((50, 2), np.float64))
    )
    assert [(one.shape, one.dtype) for one in (small, same, large)] == [((3, 4), np.float32), ((48,), np.uint8), ((50, 2), np.float64)]
    same[:] = 255
    assert np.isnan(small).all()
    assert np.may_share_memory(small, same)
    assert not np.may_share_memory(same, large)
    assert np.may_share_memory(large, scratch("test", (2,), np.int16))
    assert not np.may_share_memory(large, scratch("other", (50, 2), np.float64))


def test_each_thread_has_memory_of_its_own():
    mine, others = scratch("test", (4,), np.uint8), []
    thread = Thread(target=lambda: others.append(scratch("test", (4,), np.uint8)))
    thread.start()
    thread.join()
    assert not np.may_share_memory(mine, others[0])


def test_much_memory_is_not_kept():
    first, second = (scratch("test", (2**24 + 1,), np.uint8) for _ in range(2))
    assert not np.may_share_memory(first, second)

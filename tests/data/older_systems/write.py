"""Write the files beside this script with the programs of the older systems.

Run it in an environment of its own, with Python 3.11:

    pip install tensorpack==0.11 msgpack==0.5.6 msgpack-numpy==0.4.3.2 'numpy<2' h5py lmdb opencv-python-headless tensorflow-cpu==2.18.0
    python write.py

``sample(0)`` to ``sample(2)`` are in each file. The image of ``sample(0)`` is black: its bytes are valid UTF-8.
"""

import os
from pathlib import Path

import msgpack
import msgpack_numpy
import numpy as np

HERE = Path(__file__).parent


def sample(number):
    return [np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * (number * 20), number]


def write_tensorpack():
    import tensorpack.dataflow.serialize as serializers
    from tensorpack.dataflow import DataFromList
    from tensorpack.utils.serialize import MsgpackSerializer, PickleSerializer

    flow = DataFromList([sample(number) for number in range(3)], shuffle=False)
    np.object = object  # the name that NumpySerializer uses
    assert serializers.dumps is PickleSerializer.dumps
    serializers.NumpySerializer.save(flow, str(HERE / "tensorpack.npz"))
    serializers.TFRecordSerializer.save(flow, str(HERE / "tensorpack.tfrecord"))
    serializers.HDF5Serializer.save(flow, str(HERE / "tensorpack.h5"), ["image", "label"])
    for name, serializer in (("pickle", PickleSerializer), ("msgpack", MsgpackSerializer)):  # TENSORPACK_SERIALIZE=name
        serializers.dumps = serializer.dumps
        serializers.LMDBSerializer.save(flow, str(HERE / f"tensorpack-{name}.mdb"))
        os.remove(HERE / f"tensorpack-{name}.mdb-lock")


def write_highway():
    """Write the values of Highway's LevelDBSink, as hex: LevelDB itself keeps logs and locks beside them."""
    assert msgpack.version < (1,)  # whose default is use_bin_type=False
    items = [[image, np.eye(3, dtype=np.float32)[number], f"cat/{number}.jpg"] for image, number in map(sample, range(3))]
    values = [msgpack.packb(item, default=msgpack_numpy.encode) for item in items]
    (HERE / "highway-2017.hex").write_text("".join(f"{value.hex()}\n" for value in values))


write_highway()  # first, since tensorpack changes what msgpack.packb does
write_tensorpack()

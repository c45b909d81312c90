"""Files of records one after the other: TFRecord, ArrayRecord, and the ``tf.train.Example`` that is in most of them."""

"""Files of consecutive records: TFRecord, ArrayRecord, and the ``tf.train.Example`` that most of these records contain."""

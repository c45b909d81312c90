"""Files of consecutive records: TFRecord and ArrayRecord files, the ``tf.train.Example`` in most records, and Megatron-LM's tokens."""

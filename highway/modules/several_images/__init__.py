"""Stages that combine several images of a batch: ``mixup`` (and CutMix), ``mosaic`` and ``copy_paste``."""

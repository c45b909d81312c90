"""Stages that put several images of a batch together: ``mixup`` (and CutMix), ``mosaic`` and ``copy_paste``."""

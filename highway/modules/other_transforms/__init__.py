"""Stages that apply the transforms of other packages: ``albumentations`` and ``torchvision``. ``adapter`` is their base class."""

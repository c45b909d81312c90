"""Stages that apply the transforms of other packages: ``albumentations`` and ``torchvision``; ``adapter`` is what they have in common."""

"""What was called otherwise in Highway (2017), tensorcom and tensorpack, or is in torchvision and Albumentations: the table of names.

An old parameter, class or module is an error that names the new one. :class:`Finder` says it of modules, :func:`raise_missing` of classes,
and the check of a component's parameters asks :func:`new_name`. A few old parameters still do what they did, by :func:`current`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_WORKERS = "it is num_workers= of Stage({component}(...), num_workers=...), in YAML num_workers: beside the component"
_OWN_WORKERS = "it is called num_workers now"
_CODEC = 'codec="msgpack" speaks Highway\'s encoding (msgpack with msgpack-numpy)'
_CACHE = "put the component Cache behind the reader"

KEYWORDS: Final[Mapping[str, str]] = {
    "n_worker": _WORKERS,
    "ImageReader.n_worker": _OWN_WORKERS,
    "ImageFileReader.n_worker": _OWN_WORKERS,
    "Noise.n_worker": "leave it out; Processes([[Noise(...)], [Noise(...)]]) runs one in each of two processes",
    "queue_size": "it is buffer_size= of Stage({component}(...), buffer_size=...), in YAML buffer_size: beside the component",
    "Noise.data_shape": "it is called shape now",
    "Noise.force_constant": "it is called constant now",
    "ZMQSink.target": "it is called url now",
    "ZMQSink.encoding": _CODEC,
    "ZMQSink.flags": "leave it out: sending waits, and ends when the pipeline is stopped",
    "ZMQSource.source": "it is called url now",
    "ZMQSource.decoding": _CODEC,
    "ZMQSource.flags": "leave it out: receiving waits, and ends when the pipeline is stopped",
    "ZMQSource.copy": "leave it out: nothing is copied unless writable=True asks for arrays that may be written into",
    "ZMQSource.track": "leave it out",
    "Benchmark.N": "it is called n now",
    "ImageSink.out_dir": "it is called path now",
    "ImageSink.file_type": 'it is called format now, "png" or "jpg"',
    "DumpImages.out_dir": "it is called path now",
    "DumpImages.file_type": 'it is called format now, "png" or "jpg"',
    "DumpImages.enqueue": "leave it out: DumpImages hands every item on, ImageSink ends a pipeline",
    "DumpImages.batch_naming": "leave it out: files are named by a running number and the samples' keys",
    "ImageReader.random": "it is called shuffle now",
    "ImageReader.once": "epochs=1 ends after one pass",
    "ImageReader.cache_size": _CACHE,
    "ImageFileReader.file_map": "there must be one folder per label; or read the files with a generator of your own as the source",
    "ImageFileReader.cache_size": _CACHE,
    "Batch.remainder": "it is called drop_last now, the other way round: remainder=True is drop_last=False",
    "crop.center": "it is called corner now, as what it is: (row, column) of the upper left corner",
    "LevelDBSource.decoding": 'it is called decode now: decode="msgpack" reads what Highway has written, which is recognised without it',
    "LevelDBSink.encoding": "leave it out: LevelDBSource reads what it writes",
    "add_noise.tensor": "it is called image now",
    "clipped_zoom.img": "it is called image now",
}
"""What to write in place of a parameter, by its old name, or by ``Component.name`` or ``function.name`` where others have another."""

_LAST = {"keep": False, "drop": True}
ACCEPTED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "LevelDBSink.filename": ("path", {}),
    "LevelDBSource.filename": ("path", {}),
    "Batch.size": ("batch_size", {}),
    "Batch.last": ("drop_last", _LAST),
    "BatchByShape.size": ("batch_size", {}),
    "BatchByShape.last": ("drop_last", _LAST),
    "Shuffle.buffer": ("buffer_size", {}),
    "ImageFolder.classes": ("class_names", {}),
    "Rotate.order": ("interpolation", {}),
    "Zoom.order": ("interpolation", {}),
    "Resize.interp": ("interpolation", {}),
    "resize.interp": ("interpolation", {}),
    "rotate.order": ("interpolation", {}),
    "clipped_zoom.order": ("interpolation", {}),
}
"""Old parameters that still do what they did, by ``Component.name``: their names now, and the values that are written otherwise."""

_TRANSFORMS = {  # of tensorpack; then of torchvision, and of Albumentations
    "Flip": "FlipX or FlipY",
    "Rotation": "Rotate",
    "RotationAndCropValid": "RotateAndCropValid",
    "GoogleNetRandomCropAndResize": "RandomResizedCrop",
    "RandomCutout": "Cutout",
    "BrightnessScale": "Brightness",
    "CenterPaste": "Paste",
    "RandomPaste": 'Paste (place="random")',
    "BackgroundFiller": "Paste (fill=)",
    "ConstantBackgroundFiller": "Paste (fill=)",
    "GaussianDeform": "Elastic",
    "SaltPepperNoise": "SaltPepper",
    "ToFloat32": "ToFloat (scale=1)",
    "RandomApplyAug": "Sometimes",
    "RandomChooseAug": "OneOf",
    "RandomOrderAug": "Shuffled",
    "MapImage": "Lambda",
    "AugmentorList": "Chain, or a list",
    "Augmentor": "Transform",
    "ImageAugmentor": "Transform",
    "PhotometricAugmentor": "Transform",
    "IAAugmentor": "Transform, to derive one that calls imgaug",
    "RandomHorizontalFlip": "FlipX",
    "RandomVerticalFlip": "FlipY",
    "RandomRotation": "Rotate",
    "RandomAffine": "Affine",
    "RandomPerspective": "Perspective (p=0.5)",
    "ElasticTransform": "Elastic",
    "RandomAdjustSharpness": "Sharpness",
    "RandomAutocontrast": "AutoContrast (p=0.5)",
    "RandomEqualize": "Equalize (p=0.5)",
    "RandomGrayscale": "Grayscale (p=0.1)",
    "RandomInvert": "Invert (p=0.5)",
    "RandomPosterize": "Posterize (p=0.5)",
    "RandomSolarize": "Solarize (p=0.5)",
    "RandomPhotometricDistort": "ColorJitter",
    "RandomShortestSize": "ResizeShortestEdge",
    "ScaleJitter": "LargeScaleJitter",
    "SanitizeBoundingBoxes": "SanitizeBoxes",
    "JPEG": "JpegNoise",
    "ToDtype": "ToFloat or ToUint8",
    "ToTensor": "ToFloat (highway.adapters.torch hands tensors over, with channels first)",
    "RandomApply": "Sometimes",
    "RandomChoice": "OneOf",
    "RandomOrder": "Shuffled",
    "Compose": "Chain, or a list",
    "HorizontalFlip": "FlipX",
    "VerticalFlip": "FlipY",
    "RandomRotate90": "Rotate90",
    "SmallestMaxSize": "ResizeShortestEdge",
    "LongestMaxSize": 'Resize (mode="longer")',
    "PadIfNeeded": "Paste",
    "RandomScale": "RandomResize",
    "SafeRotate": "Rotate (reshape=True)",
    "ShiftScaleRotate": "Affine",
    "RandomBrightnessContrast": "ColorJitter (saturation=0, hue=0)",
    "HueSaturationValue": "ColorJitter (contrast=0)",
    "RandomGamma": "Gamma",
    "ToGray": "Grayscale",
    "InvertImg": "Invert",
    "GaussNoise": "GaussianNoise",
    "SaltAndPepper": "SaltPepper",
    "ImageCompression": "JpegNoise",
    "Sharpen": "Sharpness",
    "FancyPCA": "Lighting",
    "Erasing": "RandomErasing",
    "FromFloat": "ToUint8",
    "BBoxSafeRandomCrop": "BoxSafeCrop",
    "RandomSizedBBoxSafeCrop": "BoxSafeCrop, and Resize behind it",
}
_AUGMENTATIONS = {  # what Augmentations does
    "AugmentImageComponent": "field=",
    "AugmentImageComponents": "boxes=, points=, mask=",
    "AugmentImageCoordinates": "points=",
    "ClampBoundingBoxes": "keep=",
    "BboxParams": "boxes=, with_boxes=",
    "KeypointParams": "points=, with_points=",
}

_STAGES = {"albumentations": "Albumentations", "torchvision": "TorchvisionV2"}  # by the package whose transforms they apply

CLASSES: Final[Mapping[str, str]] = {
    **{old: f"highway.transforms.{new}" for old, new in _TRANSFORMS.items()},
    **{old: f"highway.modules.Augmentations ({parameters})" for old, parameters in _AUGMENTATIONS.items()},
    "ClfImgReader": "highway.modules.ImageFileReader (its labels are numbers; one_hot=True makes them what they were)",
    "ImgReader": "highway.modules.ImageReader",
    "ImgSaver": "highway.modules.ImageSink",
    "JpgSaver": 'highway.modules.ImageSink (format="jpg")',
    "ImgDumper": "highway.modules.DumpImages",
    "JpgDumper": 'highway.modules.DumpImages (format="jpg")',
    "StreamWriter": "highway.modules.Tee, or a class of your own with stream(self, items)",
    "FIFOCache": "highway.modules.Cache",
    "Node": "highway.Stage around any iterable or function",
    "Augmentation": "highway.transforms.Transform",
    "VerticalSlicer": "highway.transforms.Slicer",
    "DequeueGenerator": "highway.Pipeline itself, which can be iterated",
    "LMDBData": "highway.modules.LMDBSource, or highway.datasets.LMDB, which a Reader reads",
    "LMDBDataDecoder": "highway.modules.LMDBSource (decode= says what a value is)",
    "LMDBDataPoint": "highway.modules.LMDBSource",
    "CaffeLMDB": "highway.modules.LMDBSource, which recognises Caffe's databases",
    "LMDBSerializer": "highway.modules.LMDBSink and LMDBSource, which reads what LMDBSerializer has written; or `highway convert`",
    "NumpySerializer": "highway.modules.NpzSink, and highway.datasets.Npz",
    "HDF5Data": "highway.modules.HDF5Source, or highway.datasets.HDF5, which a Reader reads",
    "HDF5Serializer": "highway.modules.HDF5Sink and HDF5Source",
    "SVMLightData": "highway.datasets.SVMLight, which a Reader reads",
    "TFRecordSerializer": "highway.modules.TFRecordSink and TFRecordSource",
}
"""Where to find what a class was for, by its old name."""

MODULES: Final[Mapping[str, str]] = {
    "highway.modules.processing": "highway.modules",
    "highway.modules.fs": "highway.modules",
    "highway.modules.db": "highway.modules",
    "highway.modules.base": "highway.modules",
    "highway.augmentations": "highway.transforms (its functions: highway.functional)",
    "highway.transforms.img": "highway.functional",
    "highway.utils": "highway.functional",
    "highway.debug": "highway.modules (Benchmark, DumpImages)",
    "highway.zcom": "highway (Connection) and highway.tenbin (tenbin's functions)",
}
"""Where to find the names of a module that is gone; those below it are meant too."""


def new_class(name: str) -> str:
    """Return ``; use `` and what to write in place of an old class; empty if there never was one of that name."""
    return f"; use {CLASSES[name]}" if name in CLASSES else ""


def stage_of(transform: object) -> str:
    """Return the stage that applies a transform of another package; empty if there is none."""
    return _STAGES.get(type(transform).__module__.partition(".")[0], "")


def applied_by(transform: object) -> str:
    """Return ``; `` and how a function, or a transform of another package, is applied where highway's own are expected; else nothing."""
    if inspect.isroutine(transform):
        return "; a function becomes one by Lambda(function)"
    stage = stage_of(transform)
    return f"; the stage {stage}([...]) applies it" if stage else ""


def new_name(component: str, keyword: str) -> str:
    """Return ``; `` and what to write in place of a component's old parameter; empty if it never had one of that name."""
    advice = KEYWORDS.get(f"{component}.{keyword}") or KEYWORDS.get(keyword)
    return f"; {advice.format(component=component)}" if advice else ""


def current(component: str, keyword: str, value: Any) -> tuple[str, Any]:
    """Return what a parameter is called now, and its value as it is written now."""
    name, values = ACCEPTED.get(f"{component}.{keyword}", (keyword, {}))
    return name, values.get(value, value) if isinstance(value, str) else value


def accepted(component: str) -> dict[str, str]:
    """Return the old parameters that a component still takes, and what they are called now."""
    return {key.partition(".")[2]: name for key, (name, _) in ACCEPTED.items() if key.startswith(f"{component}.")}


def with_old_names(function: Callable[P, R]) -> Callable[P, R]:
    """Take a function's old parameters for the new ones, or have the error name those."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if (now := dict(current(function.__name__, key, value) for key, value in kwargs.items())).keys() != kwargs.keys():
                return function(*args, **now)
            for keyword in kwargs:
                if advice := new_name(function.__name__, keyword):
                    raise TypeError(f"unknown parameter {keyword!r} of {function.__name__}{advice}") from error
            raise

    return call


def raise_missing(module: str, name: str) -> NoReturn:
    """Say that a module does not have a name: of an old class, what it is called now.

    That is an ImportError even for a plain attribute, since ``from module import name`` swallows the text of an AttributeError.
    """
    if name in CLASSES:
        raise ImportError(f"there is no {name} in {module}{new_class(name)}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def explain_missing(module: str) -> None:
    """Have a module :func:`raise_missing`. Said in the module itself, ``__getattr__`` would hide misspelt names from type checkers."""
    vars(sys.modules[module])["__getattr__"] = partial(raise_missing, module)


class Finder:
    """Asked last of all for a module (an entry of ``sys.meta_path``): finds none, and says where the names of an old one are."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in MODULES:
            raise ImportError(f"there is no module {name} any more; its names are in {MODULES[name]}")

"""An instance of every transform there is, sorted by what each keeps: tests of what holds for all of them go through these tables."""

import numpy as np

import highway.transforms as T


def shaded(image, rng):
    """Stand for a function of the user: darken by a factor that is drawn."""
    return image if rng is None else (image * np.float32(rng.uniform(0.5, 1))).astype(image.dtype)


POLICIES = {T.RandAugment, T.TrivialAugmentWide, T.AutoAugment, T.AugMix}
ONLY_BYTES = {T.Equalize, T.CLAHE, T.JpegNoise} | POLICIES
KEEPING = [  # size, dtype and channels stay
    T.FlipX(),
    T.FlipX(p=1.0),
    T.FlipY(p=1.0),
    T.PadCrop(3, "reflect"),
    T.AdditiveNoise(20.0),
    T.Shift(4, "wrap"),
    T.Rotate(40, interpolation=3),
    T.Zoom(0.4),
    T.HistEq(),
    T.Brightness(),
    T.Contrast(),
    T.Saturation(),
    T.Grayscale(),
    T.Affine(30, (0.1, 0.2), (0.8, 1.2), 10),
    T.Shear(20),
    T.Translate((0.3, 0.2)),
    T.Perspective(0.4),
    T.Elastic(20, 3),
    T.GridDistortion(),
    T.Hue(0.3),
    T.ColorJitter(),
    T.Gamma(),
    T.Posterize(),
    T.Solarize(),
    T.Invert(),
    T.AutoContrast(),
    T.Clip(20, 200),
    T.GaussianBlur(),
    T.MotionBlur(),
    T.Sharpness(),
    T.GaussianNoise(),
    T.SaltPepper(),
    T.ISONoise(),
    T.RandomErasing(),
    T.CoarseDropout(),
    T.Cutout(),
    T.Lambda(shaded),
    T.SanitizeBoxes(),
    T.RandomIoUCrop(),  # an image without boxes stays whole
]
SIZING = [  # the size becomes (12, 10)
    T.Resize((12, 10)),
    T.Slicer(0.6, 1 / 3),
    T.CenterCrop((12, 10)),
    T.TopCenterCrop((12, 10)),
    T.RandomCrop((12, 10)),
    T.RandomResizedCrop((12, 10)),
    T.Paste((12, 10), "random"),
]
FLOATING = [  # the dtype becomes float32
    T.RescaleImages(),
    T.Normalize(0.5, 0.5),
    T.ToFloat(),
    T.MinMaxNormalize(),
    T.MeanVarianceNormalize(),
]
BYTES = [  # for uint8, or what comes out is
    *[T.RandAugment(), T.TrivialAugmentWide(), T.AutoAugment(), T.AutoAugment("svhn"), T.AugMix()],
    *[T.Equalize(), T.CLAHE(), T.JpegNoise(), T.MedianBlur(), T.ToUint8()],
]
COLORS = [T.Lighting(), T.ColorSpace("RGB2HSV")]  # for three channels
COMPOSED = [  # size, dtype and channels stay, here
    T.Chain([T.FlipX(), [T.FlipY(), T.Brightness()]]),
    T.Sometimes(0.5, T.FlipX(1.0)),
    T.OneOf([T.FlipX(1.0), T.FlipY(1.0)]),
    T.SomeOf(1, [T.FlipX(1.0), T.FlipY(1.0)]),
    T.Shuffled([T.Brightness(), T.Contrast()]),
]
VARYING = [  # the size is drawn, or another for each image
    T.BoxSafeCrop(),
    T.Pad((2, 5), fill=7),
    T.RandomZoomOut(),
    T.Rotate90(),
    T.D4(),
    T.Transpose(),
    T.ResizeShortestEdge((16, 24)),
    T.RandomResize((0.5, 1.5), (0.5, 1.5)),
    T.LargeScaleJitter((40, 40), (0.5, 1.5)),
    T.RandomCropRandomShape(12, 12),
    T.RotateAndCropValid(20),
]
ALL = KEEPING + SIZING + FLOATING
EVERY = ALL + BYTES + COLORS + COMPOSED + VARYING
CHANCELESS = [
    T.FlipX(),
    T.FlipY(),
    T.PadCrop(3),
    T.AdditiveNoise(20.0),
    T.Shift(4),
    T.Rotate(40),
    T.Zoom(0.4),
    T.Brightness(),
    T.Contrast(),
    T.Saturation(),
    T.Grayscale(p=0.5),
    *[
        each
        for each in KEEPING
        if type(each).__module__.rpartition(".")[2] in ("warp", "distort", "levels", "blur", "noise")
        and type(each) not in (T.HistEq, T.Clip)
    ],
    T.Hue(0.3),
    T.Sharpness(),
    T.ColorJitter(),
    T.Lambda(shaded),
    T.Lighting(),
    *[each for each in BYTES if not isinstance(each, T.ToUint8)],
]

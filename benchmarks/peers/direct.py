"""Changes that take more than one call of OpenCV or Pillow, as one would write them by hand."""

from __future__ import annotations

import io

import cv2
import numpy as np
from PIL import Image


def jpeg(image: np.ndarray) -> np.ndarray:
    return cv2.imdecode(cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, 70))[1], cv2.IMREAD_COLOR)


def pillow_jpeg(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=70)
    done = Image.open(file)
    done.load()
    return done


def hue(image: np.ndarray) -> np.ndarray:
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    hsv[..., 0] += np.uint8(20)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)


def clahe(image: np.ndarray) -> np.ndarray:
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
    lab[..., 0] = cv2.createCLAHE(4, (8, 8)).apply(lab[..., 0])
    return cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)


def noise(image: np.ndarray) -> np.ndarray:
    noise = np.empty(image.shape, np.int16)
    cv2.randn(noise, 0, 15)
    return cv2.add(image, noise, dtype=cv2.CV_8U)


def erasing(image: np.ndarray) -> np.ndarray:
    done = image.copy()
    done[40:120, 60:140] = 0
    return done


def sharpness(image: np.ndarray) -> np.ndarray:
    return cv2.addWeighted(image, 1.4, cv2.blur(image, (3, 3)), -0.4, 0)


def equalize(image: np.ndarray) -> np.ndarray:
    return cv2.merge([cv2.equalizeHist(plane) for plane in cv2.split(image)])

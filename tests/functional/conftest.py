from image_backends import image_backend

__all__ = ["image_backend"]

"""Small datasets of labelled images, which are loaded into memory (``loaded``): MNIST (``mnist``) and CIFAR (``cifar``).

``ilsvrc`` reads the mean image and the boxes of ILSVRC (ImageNet).
"""

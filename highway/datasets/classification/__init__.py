"""Small labelled image datasets that are loaded as a whole (``loaded``): MNIST and others in its format (``mnist``), CIFAR (``cifar``).

``ilsvrc`` reads other files of ILSVRC (ImageNet).
"""

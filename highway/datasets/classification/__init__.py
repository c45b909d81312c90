"""Small sets of labelled images that are loaded as a whole (``loaded``): MNIST and what has its files (``mnist``), CIFAR (``cifar``).

``ilsvrc`` reads what else comes with ILSVRC (ImageNet).
"""

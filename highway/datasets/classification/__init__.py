"""Small labelled image datasets in memory (``loaded``): MNIST and datasets in its format (``mnist``), CIFAR (``cifar``).

``ilsvrc`` reads the mean image and the boxes of ILSVRC (ImageNet).
"""

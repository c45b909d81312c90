"""Small labelled image datasets in memory (``loaded``): MNIST and datasets in its format (``mnist``), CIFAR (``cifar``).

``ilsvrc`` reads other files of ILSVRC (ImageNet).
"""

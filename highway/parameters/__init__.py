"""Read the signature of a component, check arguments in Python and in YAML, and locate errors.

``ranges`` defines conditions on values, ``hints`` reads and describes type hints, ``convert`` converts and checks values, ``checks`` checks
the arguments of constructors, ``location`` locates a value in a file, ``docstrings`` reads the descriptions of parameters.

May use: ``errors`` and ``old_names``. Begin reading with ``ranges``, then ``checks``.
"""

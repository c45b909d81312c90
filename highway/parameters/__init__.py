"""What a component's signature says of its parameters: checked in Python as in YAML, and named where they are wrong.

``ranges`` is what stands beside a type, ``hints`` reads and words types, ``convert`` holds values against them, ``checks`` the arguments of
a constructor, ``location`` says where in a file a value stands, ``docstrings`` what it is for.

May use: the errors and old names. Begin with ``ranges``, then ``checks``.
"""

"""Images with boxes, and masks or keypoints: the files of PASCAL VOC (``voc``) and of COCO (``coco``).

Boxes are float32 ``(N, 4)``: x1, y1, x2, y2 in pixels. (0, 0) is the upper left corner of the upper left pixel, as in ``transforms``.
"""

"""Images with boxes, masks and keypoints, from the files of PASCAL VOC (``voc``) and COCO (``coco``).

Boxes are float32 ``(N, 4)``: x1, y1, x2, y2 in pixels. (0, 0) is the upper left corner of the image, as in ``transforms``.
"""

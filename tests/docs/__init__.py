"""Tests of the documents: README.md, CONTRIBUTING.md, SECURITY.md, deploy/ and docs/, found by glob.

How a page's code is tested; a page needs no code here.

- Links: every relative link and every anchor must exist. Link to files of the repository by relative
  paths, also out of docs/ (`../../deploy/README.md`, `../../CHANGELOG.md`): the site adds those pages.
  Do not link to README.md.
- ```shell blocks: every `recordmill` command (`python -m recordmill` too) must parse with the real parser,
  and is run in a temporary folder, page by page, in order. `make` commands must name a target and
  variables of the Makefile.
- ```console blocks: commands must parse, and are not run. Use it for buckets, Dataflow and Flink.
- ```python blocks: must compile, and are run in order with the shell blocks, in one namespace a page.
  Blocks that import `tfrecord` or `nvidia` run in a process of their own, and skip without the package.
- `print(…)  # TEXT` in a program that is run must print TEXT.
- Commands with a gs:// path, or with --runner, must parse, and are not run.
- `<!-- exit 2 -->` on the line before a ```shell block: its commands end with this status.
- `<!-- not run -->` on the line before a ```shell or ```python block: it must parse or compile, and is
  not run.
- What is converted must have no failed input, unless the status is given.
- A page with more than two `recordmill` commands that run is slow: only `make test-all` runs it.
- Any other language (```text, ```json, ```yaml) and indented blocks are not looked at.

Inputs are drawn by the first folder or file of a path, if no earlier command of the page writes it:

    photos/        photos/<circle, square, triangle>/*.jpg, 10 each, 320x240
    pets/          cat_0.jpeg cat_1.png dog_0.jpg: labels in the names
    labels.csv     path,label,age of two images in photos/
    lists/         lists/labels.jsonl of the same images: image, label
    boxes.csv      filename,width,height,class,xmin,ymin,xmax,ymax of photos/1.jpg and 2.jpg
    mnist/         train-images-idx3-ubyte.gz …
    coco/          annotations/instances_train2017.json, captions…, panoptic…; train2017/: one image
    VOC2012/       Annotations/ ImageSets/ JPEGImages/ SegmentationClass/: one image
    coco8/         data.yaml images/{train,val}/ labels/{train,val}/: YOLO with the class dog
    roads/         images/1.jpg masks/1.png classes.txt (background, road)
    scenes/        COCO of circle, square, triangle in the splits train and val
    shapes/        images/{train,val}/ masks/{train,val}/ classes.txt; 255 is in the masks
    clips/         clips/train/running/clip7/: frames, labels.txt, timestamps.txt
    series.jsonl   two sequences
    bloated/       bloated/train.tfrecord: a record of raw pixels
    imagenet/ open_images/ shards/ arrays/ dataset/ photos.zip
                   as in the examples of docs/reference/sources.md
    classes.txt    circle, square, triangle: a --label_file for photos/
    out/           not an input: the dataset of `recordmill convert --input photos/ --output out/`,
                   unless a command of the page writes out/

A new input is one line in INPUTS of tests/docs/inputs.py. Outputs may have any other name.
"""

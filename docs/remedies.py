"""The meaning of each reason of failures.jsonl, and the remedy."""

REMEDIES = {
    "XML in no folder of annotations": (
        "The XML file is in no folder such as `Annotations/` or `bbox/`. Move it if it belongs to an image."
    ),
    "XML too large": "The file is larger or deeper than the [limits](sources.md#limits).",
    "XML with a document type": "Remove the DOCTYPE: entities are never read.",
    "a class has two names": (
        "One class id has different texts in the records. Correct the texts, or give `--label_file`."
    ),
    "a name in the context and in the lists": "Rename one of the two.",
    "a value has no name": "A cell has no column name, or a JSON key is empty. Name it.",
    "annotation file is not UTF-8": "Save the file as UTF-8.",
    "annotation file too large": (
        "The file is larger than its format allows. Check that it belongs to one image."
    ),
    "annotation files disagree on the size": "Two COCO files give the image different sizes. Correct one.",
    "annotation not supported": "The import file is for a task that Recordmill does not read.",
    "annotation without its image": (
        "No image has this name. Check the path, or add its folder with `--image_root`."
    ),
    "another member of the same name": "Two members have this name. Only the first is read.",
    "attribute is not text": "Write the attribute of the object as text.",
    "attribute of a box is not -1, 0 or 1": "Correct the cell of the Open Images CSV.",
    "bounding box is not four numbers": "Correct `bbox`: x, y, width, height.",
    "box clipped": "The box was partly outside the image. `--boxes drop` or `fail` treats it differently.",
    "box cut off by the crop": "`--fit crop` removed the complete box.",
    "box in pixels": "`image/object/bbox` must be normalised to [0, 1]. Write the records again.",
    "box is not a number": "A coordinate is NaN or infinite. Correct it.",
    "box is not four numbers": "Correct the four cells or list items of the box.",
    "box is not relative": (
        "Other boxes of this file are normalised to [0, 1], and this one is in pixels. Use one unit."
    ),
    "box is not two or four vertices": "Correct the row of the Vertex AI import file.",
    "box outside the image": (
        "With `--boxes fail`: the box is partly or completely outside. Correct it, or use `clip` or `drop`."
    ),
    "box outside the image dropped": "The box was outside the image, or partly outside with `--boxes drop`.",
    "box without a label": "Fill in the label of the row.",
    "box without an area": (
        "Width or height is 0. Kept records lose the box; with `--boxes fail` the record fails."
    ),
    "boxes and labels differ in number": "Give one label for each box.",
    "boxes are in two units": "Rows of one image have boxes in pixels and normalised boxes. Use one unit.",
    "boxes are not a list": "Write the boxes as a JSON list.",
    "caption is not text": "Correct `caption` in the COCO file.",
    "category is not listed": "Add the category to `categories`.",
    "class id is not among the names": (
        "The id has no name in data.yaml or obj.names. Add the name, or correct the line."
    ),
    "class id that means ignored pixels": (
        "No class may have the id 255: it means ignored pixels. Shift the ids with `--label_offset`, or "
        "ignore the class with `--ignore_label`."
    ),
    "class id too large for a mask": "A mask stores ids up to 65,535.",
    "class id too large for mask_raw": "`--schema plain` stores ids up to 255. Use `--schema segmentation`.",
    "colour without a class": (
        "The mask has a colour that the table of colours lacks. Add it, or correct the mask."
    ),
    "column not read": "The column holds further images. A record stores one image.",
    "compression is not read": "Compress the archive with deflate, or store its members.",
    "confidence is not a number from 0 to 1": "Correct the cell of the Open Images CSV.",
    "coordinates are not shares of the image": "YOLO's coordinates must be normalised to [0, 1].",
    "corrupt": "The file is damaged. Copy it again from its origin.",
    "crashes the codec": (
        "The image ends the process that decodes it. It was tried twice. Save it again with another program."
    ),
    "damaged Parquet file": "Copy the file again. Its other rows are not read.",
    "damaged TFRecord": (
        "A checksum is wrong, or the file is truncated. The rest of the file is not read. Copy it again."
    ),
    "damaged archive": "The rest of the archive cannot be read. Copy it again.",
    "damaged archive member": "The checksum of the member is wrong. Copy the archive again.",
    "duplicate image": (
        "With `--duplicates drop`: another record has the same image, byte for byte, and is kept. The detail "
        "names it. See [Duplicates](../guides/duplicates.md)."
    ),
    "empty file": "The file has no bytes.",
    "empty image": "The feature of the image has no bytes.",
    "empty label": "The `.cls` member is empty.",
    "encrypted member": "Decrypt the archive.",
    "excluded by --include/--exclude": "Left out by your flags.",
    "file does not fit the frames": "`timestamps` or `labels` has other frames than the folder.",
    "folder without a name": "The object's name has an empty part (`a//b.jpg`). Rename it.",
    "ground truth without its images": "The ground truth has more lines than there are images of the split.",
    "hangs the codec": "The codec did not end within the [time limit](#limits). Save the image again.",
    "hidden": "A name that begins with a dot, or a file of the operating system.",
    "image column comes late": "The first 100 rows have no such column. Give `--image_column`.",
    "image has another annotation": "Two annotation files name this image. Remove one.",
    "image has two sizes": "Rows of the image give different sizes.",
    "image has two values of one feature": "Rows of the image differ in a column that describes the image.",
    "image id twice": "The COCO file lists the id twice.",
    "image in no split": "The lists of splits do not name it. Add it to a list.",
    "image is in two splits": "Rows of the image name different splits.",
    "image listed twice": "A list names the image twice.",
    "image of another size than its annotations": (
        "The annotations were made for another version of the image. Use the original image."
    ),
    "image of no known format": (
        "The bytes of the feature are not an image. Raw pixels need features for their height and width."
    ),
    "image twice": "Two entries of the COCO files are one image. Remove one.",
    "image without a file name": "Add `file_name` to the entry of the image.",
    "image without a mask": "Add a mask, or leave the image out.",
    "image without annotations": "Other images have annotations. Add some, or leave the image out.",
    "in no list of ImageSets": "The lists of splits do not name it. Add it to a list in `ImageSets/`.",
    "in several lists of ImageSets": "The image is in the lists of two splits. Remove it from one.",
    "iscrowd is not 0 or 1": "Correct the annotation.",
    "key point is not a number": "A coordinate is NaN or infinite. Correct it.",
    "key points cut off by the crop": "`--fit crop` removed these key points.",
    "key points outside the image dropped": "The key points were outside the image.",
    "label is neither whole number nor text": "Correct the label of the row.",
    "label is not text or an integer": "Correct the label of the row.",
    "label pattern does not match": (
        "`--label_pattern` finds no label in the key. Change the pattern, or exclude the file."
    ),
    "label without a name": "The id is outside the names of the ClassLabel.",
    "labels that nobody has verified are not taken": "Open Images: only verified labels are read.",
    "labels without images": "No array or IDX file of images has this name.",
    "left out by map_image": (
        "The function of `--map_image` returned None, a text or no sample. The detail has the text."
    ),
    "listed and not there": "A list in `ImageSets/` names an image with neither file nor annotation.",
    "listed image that is not there and has no annotation": "The list of images names it. Nothing is lost.",
    "lists of different lengths": (
        "The lists of one object feature differ in length from its boxes. Write the records again."
    ),
    "lists of objects differ in length": "Each list in `objects` needs one value for each box.",
    "loop of symbolic links": "The link leads to a folder above it. Its files are read once.",
    "map_image crashes": "The function of `--map_image` ends its process on this image. It was tried twice.",
    "map_image hangs": "The function of `--map_image` does not return in ten minutes. It was tried twice.",
    "map_image raised an exception": (
        "The detail names the function of `--map_image` and its exception. The log has one traceback of each."
    ),
    "map_image takes too long": (
        "The function of `--map_image` needs more processor time than an image of this size may take: 100 "
        "seconds, and 2.5 for each megapixel."
    ),
    "mask is not lossless": "JPEG changes class ids. Save the mask as PNG.",
    "mask not found": "The annotation names a mask that does not exist. Check the path.",
    "mask of another size than its image": "Scale the mask to the image without interpolation.",
    "mask of no known format": "The bytes of the mask are not an image. Save the mask as PNG.",
    "mask of no object": "No object of the annotations uses this mask.",
    "mask value without a class": (
        "The mask has an id that no class has. Add the class to `classes.txt`, give `--ignore_label ID`, or "
        "correct the mask."
    ),
    "masks are not asked for": "LabelMe: `Masks/` is read only with `--include_annotations masks`.",
    "masks are not taken": "Open Images: masks are read only with `--include_annotations masks`.",
    "member is not UTF-8": "Save the text member as UTF-8.",
    "member not read": "The sample has an image already, or the member is larger than 64 KB.",
    "member too large": "The member is larger than the [limit](sources.md#limits).",
    "members overlap": "Two members share bytes of the archive: it is damaged or hostile.",
    "name is not UTF-8": "Rename the file.",
    "named images are not there": "The list names images that do not exist.",
    "negative label": "Raise `--label_offset`, or correct the label.",
    "neither a frame nor times or labels by name": "The file belongs to no clip.",
    "neither image nor annotations by name": "The file is not used.",
    "neither images nor labels by name": "The array has no name such as `x_train` or `y_train`.",
    "no category": "The annotation has no `category_id`.",
    "no image": "The row or record has neither bytes nor a path.",
    "no image path": "The image column of the row is empty.",
    "no line in the ground truth": "The number in the image's name is larger than the ground truth.",
    "no mask": (
        "`--schema segmentation` needs a mask of each image. Exclude the image, or add `detection` "
        "to the schemas."
    ),
    "no panoptic mask": "`--schema panoptic` needs a mask of each image.",
    "no value to group by": "`--group_by` or `--group_pattern` finds no value for the record.",
    "not CSV": "The row cannot be parsed. A quote may be unclosed.",
    "not JSON": "The text cannot be parsed.",
    "not XML": "The file cannot be parsed.",
    "not a COCO annotation file": "The JSON file has none of COCO's lists.",
    "not a JSON object": "Each line must be an object: `{…}`.",
    "not a Parquet file by name": "The file is not used.",
    "not a TFRecord file by name": "The file is not used.",
    "not a YOLO line": "A line is `class cx cy width height`, or a polygon or pose.",
    "not a ZIP file": "The file has another format than its name.",
    "not a file": "A pipe, socket, device or folder.",
    "not a file name": (
        "The path has a NUL byte, an empty part or another character that file systems refuse."
    ),
    "not a label file": "The `.txt` file belongs to no image, and is not a list.",
    "not a list of steps": "Write the value as a list with one item for each step.",
    "not a prediction string": "Kaggle's cell must be `class xmin ymin xmax ymax …`.",
    "not a sequence": "Each line is an object with `context` and `feature_lists`.",
    "not a split name": "Use letters, digits, `_` and `-`.",
    "not a tf.train.Example": "The record holds something else.",
    "not an IDX file by name": "The file is not used.",
    "not an archive by name": "The file is not used.",
    "not an array by name": "The file is not used.",
    "not an image": "The file does not begin like any image format.",
    "not an image by name": "The file has no extension of an image. Rename it if it is one.",
    "not found": (
        "The path does not exist. The detail names the folders that were searched; add one with "
        "`--image_root`."
    ),
    "not supported": "The detail names the remedy, such as a format to convert the image to.",
    "number of no class": "The list has a class number that the list of synsets lacks.",
    "number out of range": "The number does not fit int64 or float32.",
    "object is not a struct": "Each item of the column must be a struct.",
    "object without a class": "Give each object a label or class id.",
    "object without box and mask": "The annotation has neither `bbox` nor `segmentation`.",
    "objects are not lists of values": "`objects` holds lists: one value for each object.",
    "out of range": "The image is past the end of its container. The container has changed.",
    "outside the archive": "The name of the member points outside the archive. The member is never read.",
    "outside the input root": (
        "The path is outside the input and every `--image_root`. Add its folder with `--image_root`."
    ),
    "panoptic id without a segment": "The mask has an id that `segments_info` lacks.",
    "panoptic mask not found": "Check the folder of panoptic PNGs, or add it with `--image_root`.",
    "panoptic mask without a file name": "Add `file_name` to the annotation.",
    "path is not text": "The path column of the Parquet file holds other values.",
    "pixels are not uint8": "Write the pixels as uint8, or as PNG.",
    "polygon far outside the image": "The coordinates are not those of this image.",
    "polygon is not pairs of numbers": "Give x and y of each point.",
    "row has a NUL byte": "Remove the byte.",
    "row has not two cells": "Each row needs two cells: an image and a class.",
    "row is not Unicode": "Save the file as UTF-8.",
    "row too long": "The row is longer than the [limit](sources.md#limits). A quote may be unclosed.",
    "row without a label": "Fill in `LabelName`.",
    "row without an image": "Fill in `ImageID`.",
    "run lengths are not numbers": "Correct `counts`.",
    "run lengths do not fill the mask": "The counts must add up to height × width.",
    "run lengths do not fill their mask": "The counts must add up to height × width.",
    "run lengths without a size": "Add `size` to the run lengths.",
    "record too large": "No reader takes a record of 2 GiB. Store fewer or smaller images in it.",
    "same path below two roots": "Two image roots hold this path. Remove one.",
    "same set as another array": "Another array already has this split.",
    "same set as another file": "Another file, such as the compressed one, has the same images.",
    "sample may be cut off": "The archive ends within the sample. Copy it again.",
    "sample without an image": "Add an image, or remove the other members.",
    "segment id twice": "`segments_info` lists the id twice.",
    "segment without an id of a colour": "The id must be R + 256 G + 256² B.",
    "segmentation is neither polygons nor run lengths": "Correct `segmentation`.",
    "segments are not a list": "`segments_info` must be a list.",
    "several annotations of one name": "Two label files fit the image. Remove one.",
    "several images of one name": "Two images fit the label file. Remove one.",
    "size is not two whole numbers": "Correct height and width of the row.",
    "sparse member": "Pack the archive without sparse files.",
    "step without an image": "Each step of a sequence needs a frame.",
    "steps of different kinds": "All steps of a list need values of one type.",
    "takes too long": (
        "The image needed more processor time than the [limit](#limits). Save it again, or scale it down."
    ),
    "text is not UTF-8": "Write the feature as UTF-8.",
    "text is not valid Unicode": "Correct the text.",
    "too large": "The file is larger than the [limit](sources.md#limits).",
    "too many pixels": (
        "More than {pixels:,} pixels, or more than TensorFlow decodes. Scale the image down first."
    ),
    "transparent": "`--alpha fail`. Use `keep` or `flatten` to store the image.",
    "truncated": "The file ends too early. Copy it again.",
    "two columns of one meaning": (
        "The row has two columns for one value, such as `label` and `class`. Remove one."
    ),
    "two features of one name": "Two features have one name after `--input_features`.",
    "two files of one meaning": "The clip has both `.txt` and `.csv`. Remove one.",
    "two images have one id": "Two files are named by this id. Remove one.",
    "two lists of frames": "Give `frames` or `image/encoded`.",
    "two panoptic masks": "Two annotations name the image. Remove one.",
    "two values have the same name": "Rename one column or key.",
    "unknown label": "The label is not in `--label_file`. Add it, or exclude the record.",
    "value does not fit its column": "Other records have another type in this column. Correct the value.",
    "value of the wrong kind": "The value has another type than its feature.",
    "visibility of a key point is not 0, 1 or 2": "Correct the annotation.",
    "visibility of a keypoint is not a number": "Correct the feature.",
    "wrong number of bytes": "The bytes do not fit the shape of the pixels.",
    "wrong number of cells": "The row has more or fewer cells than the header.",
    "wrong result of map_image": (
        "The function of `--map_image` returned something that is no sample, or that cannot be stored. The "
        "detail says what is right."
    ),
}

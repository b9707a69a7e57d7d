"""Rows of the table of moved datasets whose verdict is not good yet."""

from __future__ import annotations

from collections.abc import Mapping

OPEN: Mapping[str, frozenset[str]] = {
    "in one folder": frozenset(
        ("raccoon as CSV", "train.csv and train_images of Kaggle", "imagenet_dataset")
    ),
    "in two folders": frozenset(
        ("raccoon as CSV", "train.csv and train_images of Kaggle", "imagenet_dataset")
    ),
    "in a folder with README.md and docs": frozenset(
        ("raccoon as CSV", "train.csv and train_images of Kaggle", "imagenet_dataset")
    ),
    "next to a picture": frozenset(
        (
            "raccoon as CSV",
            "cats_dogs in folders",
            "train.csv and train_images of Kaggle",
            "imagenet_dataset",
            "mnist_dataset",
            "camvid_dataset",
            "cvat_dataset/for_images/export_project",
        )
    ),
    "links in a folder, and --image_root": frozenset(
        (
            "raccoon as CSV",
            "raccoon as a CSV in each split",
            "train.csv and train_images of Kaggle",
            "imagenet_dataset",
        )
    ),
    "a link to it in a folder, and --image_root": frozenset(
        (
            "raccoon as CSV",
            "raccoon as a CSV in each split",
            "train.csv and train_images of Kaggle",
            "imagenet_dataset",
        )
    ),
    "a link to it in a folder": frozenset(
        ("raccoon as CSV", "train.csv and train_images of Kaggle", "imagenet_dataset")
    ),
    "--source, in one folder": frozenset(
        (
            "raccoon as CSV",
            "raccoon as a CSV in each split",
            "metadata.csv of Hugging Face",
            "train.csv and train_images of Kaggle",
            "labels.csv and train",
            "imagenet_dataset",
        )
    ),
    "--source, in two folders": frozenset(
        (
            "raccoon as CSV",
            "raccoon as a CSV in each split",
            "metadata.csv of Hugging Face",
            "train.csv and train_images of Kaggle",
            "labels.csv and train",
            "imagenet_dataset",
        )
    ),
    "next to another one": frozenset(("raccoon as CSV", "train.csv and train_images of Kaggle")),
    "right call": frozenset(("raccoon as a CSV in each split",)),
    "links and --image_root": frozenset(
        ("raccoon as a CSV in each split", "train.csv and train_images of Kaggle")
    ),
    "links without --image_root": frozenset(("raccoon as a CSV in each split",)),
    "--source": frozenset(
        (
            "raccoon as a CSV in each split",
            "metadata.csv of Hugging Face",
            "train.csv and train_images of Kaggle",
            "labels.csv and train",
        )
    ),
    "without labels": frozenset(("yolo_dataset/labels",)),
    "without labels, in one folder": frozenset(("yolo_dataset/labels",)),
    "itself": frozenset(("train.csv and train_images of Kaggle",)),
    "a link to it": frozenset(("train.csv and train_images of Kaggle",)),
    "without train.csv": frozenset(("train.csv and train_images of Kaggle",)),
    "without train.csv, in one folder": frozenset(("train.csv and train_images of Kaggle",)),
    "in five folders": frozenset(("imagenet_dataset",)),
    "among many folders": frozenset(("imagenet_dataset",)),
    "a ZIP of its folder, in a folder": frozenset(("imagenet_dataset",)),
    "a tar of its folder": frozenset(("imagenet_dataset", "labelme")),
    "without Annotations": frozenset(("labelme_dataset",)),
    "without Annotations, in one folder": frozenset(("labelme_dataset",)),
    "without annotations, in one folder": frozenset(("open_images_dataset/v6",)),
}
"""Datasets by variant."""

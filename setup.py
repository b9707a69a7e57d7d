"""Packaging of recordmill: image datasets to sharded TFRecords, on Apache Beam."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
README = ROOT / "README.md"
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "recordmill/__init__.py").read_text("utf-8"), re.M)
# The folders of the one package that an installation adds.
FOLDERS = find_packages(str(ROOT), include=["pipelines*", "transforms*"])

assert VERSION is not None

setup(
    name="recordmill",
    version=VERSION[1],
    description="Turns image datasets into training-ready, sharded TFRecords, on Apache Beam.",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    packages=["recordmill", *(f"recordmill.{name}" for name in FOLDERS)],
    package_dir={"recordmill.pipelines": "pipelines", "recordmill.transforms": "transforms"},
    package_data={
        "recordmill": ["py.typed"],
        "recordmill.transforms.pages": ["templates/*"],
        "recordmill.transforms.shards": ["manifest.schema.json"],
    },
    install_requires=[
        "apache-beam>=2.77,<2.78",
        "cloudpickle>=3.1,<4",  # --map_image: functions with their code
        "defusedxml>=0.7.1,<1",  # annotations in XML, without entities
        "google-cloud-storage>=3.1,<4",
        "google-crc32c>=1.6,<2",  # checksums of the records, in C
        "isal>=1.7,<2",  # inflates PNGs, up to three times as fast as zlib
        "jinja2>=3.1.6,<4",  # the pages of report, sweep and inspect
        "matplotlib>=3.9,<4",  # the plot of a sweep
        "mozjpeg-lossless-optimization>=1.3,<2",  # --optimize=lossless-progressive
        "msgspec>=0.20,<1",  # references and states as bytes
        "numpy>=1.26,<3",
        "pillow>=12.1.1,<13",  # the range that Beam allows
        "protobuf>=5.29,<7",
        "pyarrow>=14,<26",  # Parquet; the range that Beam allows
        "pycocotools>=2.0.8,<3",  # run lengths and polygons as COCO has them
        "psutil>=6,<8",  # how much memory is available
        "pyoxipng>=9.0,<10",  # --optimize, of PNGs
        "pyyaml>=6,<7",  # data.yaml
        "rich>=13.7,<16",  # progress bar and tables
        "simplejpeg>=1.8,<2",  # libjpeg-turbo, faster than Pillow and free of the GIL both ways
        "tenacity>=9,<10",  # faults of the file system that may pass are tried again
        "xxhash>=3.5,<5",  # hashes of images, a hundredth of the time of a cryptographic hash
        "zstandard>=0.18,<1",  # references while they are shuffled; the range that Beam allows
    ],
    extras_require={
        # What submits to Dataflow, and what its workers have.
        "gcp": ["apache-beam[gcp]>=2.77,<2.78"],
        # Reads the result back; conversions never import it.
        "tensorflow": ["tensorflow>=2.20,<2.22"],
        "dev": [
            # Its protobuf and that of tensorflow-metadata exclude each other on Python 3.10.
            "apache-beam[gcp]>=2.77,<2.78; python_version >= '3.11'",
            "bandit>=1.8,<2",
            "cyclonedx-bom>=6,<8",  # make sbom
            "gcp-storage-emulator>=2026.7",  # a bucket on loopback
            "hypothesis>=6.100,<7",
            "jsonschema>=4.20,<5",
            "mkdocs>=1.6,<2",
            "mkdocs-material>=9.6,<10",
            "mkdocstrings[python]>=0.29,<2",
            "mypy>=1.15,<3",
            "pip-audit>=2.9,<3",
            "pytest>=8,<10",
            "pytest-timeout>=2.3,<3",
            "python-hcl2>=7,<9",  # reads Terraform
            "ruff>=0.12,<1",
            "scikit-image>=0.25,<0.27",  # the reference for similarity
            "tensorflow-datasets>=4.9.9,<5",
            "pytest-xdist>=3.6,<4",
            "tfrecord>=1.14.6,<2",  # PyTorch's reader of records by their index
            "tensorflow-metadata>=1.17.3,<2",  # older ones fail with protobuf 6
            "types-PyYAML>=6",
            "types-defusedxml>=0.7",
        ],
    },
    entry_points={"console_scripts": ["recordmill = recordmill.pipelines.cli:main"]},
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
)

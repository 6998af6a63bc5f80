"""The files of each data set, and their public sources.

Every data set has one or more *forms*, best first: sets of files in the data folder that are
sufficient to load it. A form may be the whole public data set, a part of it, or a substitute.

``SHA256SUMS`` next to this file has the known checksums, computed from copies that were verified to
be identical to the public files. A file without one is downloaded with a warning, and checked by
its format and its number of examples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from snopt.lab.data.errors import DataCorrupted
from snopt.lab.data.spec import Completeness, Kind, Preprocessing, Spec


@dataclass(frozen=True)
class Origin:
    """A public address, and the checksum of its content, if known.

    A checksum is a SHA-256 in hexadecimal digits; another algorithm is named: ``"md5:..."``.
    """

    url: str
    checksum: str | None = None


@dataclass(frozen=True)
class File:
    """One file of a data set.

    Attributes:
        path: path in the data folder.
        origin: where to download it; None if that is not possible.
        member: its name in the archive at ``origin``; None if ``origin`` is the file itself.
        checksum: checksum of the file, if known.
    """

    path: str
    origin: Origin | None = None
    member: str | None = None
    checksum: str | None = None

    @property
    def own_checksum(self) -> str | None:
        """The checksum of the file itself, not of an archive that contains it."""
        if self.origin and self.member is None:
            return self.checksum or self.origin.checksum
        return self.checksum

    @property
    def verified(self) -> bool:
        """Whether a download of this file is compared with a known checksum."""
        return bool(self.checksum or (self.origin and self.origin.checksum))


@dataclass(frozen=True)
class Form:
    """A set of files that is sufficient to load a data set.

    Attributes:
        files: the files; all are needed.
        completeness: how much of the public data set they contain.
        note: one sentence about the form.
        sizes: expected numbers of examples in the public training and test parts, or None.
    """

    files: tuple[File, ...]
    completeness: Completeness
    note: str
    sizes: tuple[int, int] | None = None

    @property
    def downloadable(self) -> bool:
        """Whether all files have a public address."""
        return bool(self.files) and all(file.origin for file in self.files)


@dataclass(frozen=True)
class Found:
    """A data set's files on disk."""

    name: str
    root: Path
    form: Form

    @property
    def paths(self) -> list[Path]:
        """The files, in the order in which the form lists them."""
        return [self.root / file.path for file in self.form.files]

    def spec(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        preprocessing: Preprocessing,
        *,
        classes: int | None = None,
    ) -> Spec:
        """Return the spec of the data that was read; a series has its length first."""
        form, longest = self.form, shape[0] if kind == "series" and shape else None
        return Spec(
            self.name, kind, shape, classes, longest, form.completeness, form.note, preprocessing
        )

    def check(self, train: int, test: int) -> None:
        """Raise DataCorrupted for a number of examples that is unexpected or too small to split."""
        public = self.form.sizes
        if (public is None and train >= 10 and test >= 1) or public == (train, test):
            return
        expected = f"the public data set has {public[0]} and {public[1]}" if public else "too few"
        reason = f"there are {train} examples to train and {test} to test; {expected}"
        raise DataCorrupted(" or ".join(map(str, self.paths)), reason)


def read_checksums(path: Path) -> dict[str, str]:
    """Read a file of checksums as ``sha256sum`` writes it; other lines are skipped.

    Returns:
        the SHA-256 by path; none if there is no such file.
    """
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    lines = re.findall(r"^([0-9a-f]{64}) [ *](.+)$", text, re.MULTILINE)
    return {name: checksum for checksum, name in lines}


_CHECKSUMS = read_checksums(Path(__file__).with_name("SHA256SUMS"))


def _files(folder: str, names: str, source: str | Origin | None = None) -> tuple[File, ...]:
    """Describe files of one folder.

    Args:
        folder: their folder in the data folder.
        names: their names, separated by spaces.
        source: the archive they are in, or the address that their names complete.
    """

    def file(name: str) -> File:
        path = f"{folder}/{name}"
        if isinstance(source, str):
            return File(path, Origin(source + name), checksum=_CHECKSUMS.get(path))
        return File(path, source, name if source else None, _CHECKSUMS.get(path))

    return tuple(map(file, names.split()))


def _uea(name: str, sizes: tuple[int, int]) -> Form:
    archive = Origin(f"https://www.timeseriesclassification.com/aeon-toolkit/{name}.zip")
    files = _files(name, f"{name}_TRAIN.ts {name}_TEST.ts", archive)
    return Form(files, "whole", "As in the UEA archive.", sizes)


_UCI = "https://archive.ics.uci.edu/static/public"
_MNIST = _files(
    "mnist",
    "train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz "
    "t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
_SVHN_SOURCE = "https://ufldl.stanford.edu/housenumbers/"
_SVHN = _files("svhn", "train_32x32.mat test_32x32.mat", _SVHN_SOURCE)
_SVHN_SUBSET = _files("svhn", "train_32x32_subset.mat test_32x32_subset.mat")
_CIFAR_ARCHIVE = Origin(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
_CIFAR_NAMES = "test_batch.bin " + " ".join(f"data_batch_{i}.bin" for i in range(1, 6))
_CIFAR = _files("cifar10", _CIFAR_NAMES, _CIFAR_ARCHIVE)
_ARABIC_ARCHIVE = Origin(f"{_UCI}/195/spoken+arabic+digit.zip")
_ARABIC_NAMES = "Train_Arabic_Digit.txt Test_Arabic_Digit.txt"
_ARABIC = _files("SpokenArabicDigits", _ARABIC_NAMES, _ARABIC_ARCHIVE)
_GAS_ARCHIVE = Origin(f"{_UCI}/322/gas+sensor+array+under+dynamic+gas+mixtures.zip")
_GAS_TEXT = _files("gas", "ethylene_CO.txt", _GAS_ARCHIVE)
_AIR_QUALITY = _files("gas_standin", "AirQualityUCI.csv")
# The MD5 is the one that Zenodo publishes.
_MAF_ARCHIVE = Origin(
    "https://zenodo.org/records/1161203/files/data.tar.gz", "md5:9b9c9b0375315ad270eba4ce80c093ab"
)
# Other members of the archive are called data.npy, too.
_MINIBOONE = (File("miniboone/data.npy", _MAF_ARCHIVE, "miniboone/data.npy"),)
_MINIBOONE_PART = _files("miniboone", "val.npy test.npy")
# Rows to train and validate, and rows to test.
_GAS_SIZES, _MINIBOONE_SIZES = (946_859, 105_206), (32_840, 3_648)

#: The forms of every data set that is not generated, best first.
FORMS: dict[str, tuple[Form, ...]] = {
    "mnist": (Form(_MNIST, "whole", "The original files.", (60_000, 10_000)),),
    "svhn": (
        Form(_SVHN, "whole", "The cropped digits, without the extra part.", (73_257, 26_032)),
        Form(
            _SVHN_SUBSET,
            "part",
            "A few hundred digits cropped again from the full-number images, "
            "of 73,257 to train and 26,032 to test.",
        ),
    ),
    "cifar10": (
        Form(_CIFAR, "whole", "The binary version.", (50_000, 10_000)),
        Form(_CIFAR[:2], "part", "The first of five training files, and the whole test file."),
    ),
    "spoken_arabic_digits": (
        Form(
            _ARABIC,
            "whole",
            "UCI's files; UEA's have one utterance fewer in each part.",
            (6_600, 2_200),
        ),
        _uea("SpokenArabicDigits", (6_599, 2_199)),
    ),
    "articulary_word_recognition": (_uea("ArticularyWordRecognition", (275, 300)),),
    "character_trajectories": (_uea("CharacterTrajectories", (1_422, 1_436)),),
    "gas": (
        Form(
            _files("gas", "ethylene_CO.npy"), "whole", "MAF's table as NumPy saves it.", _GAS_SIZES
        ),
        Form(_files("gas", "ethylene_CO.h5"), "whole", "MAF's table as HDF5.", _GAS_SIZES),
        Form(
            _GAS_TEXT,
            "whole",
            "A random quarter of UCI's rows, as in MAF's table, but not the same quarter.",
            _GAS_SIZES,
        ),
        Form(
            _AIR_QUALITY,
            "stand-in",
            "UCI's Air Quality, eight columns too: results on it are not results on Gas.",
        ),
    ),
    "miniboone": (
        Form(
            _MINIBOONE, "whole", "The rows that Papamakarios et al. (2017) use.", _MINIBOONE_SIZES
        ),
        Form(_files("miniboone", "data.h5"), "whole", "The same rows as HDF5.", _MINIBOONE_SIZES),
        Form(
            _MINIBOONE_PART,
            "part",
            "The 29,556 training rows are missing: train and valid are the public validation part.",
            (3_284, 3_648),
        ),
    ),
    "digits": (Form((), "whole", "Comes with scikit-learn."),),
}

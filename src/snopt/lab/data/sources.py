"""The files of each data set, and their public sources.

Every data set has one or more *forms*, best first: sets of files in the data folder that are
enough to load it. A form may be the whole public data set, a part of it, or another data set that
stands in for it.

Checksums are SHA-256, taken from copies whose identity with the public files was established. MAF's
archive has the MD5 that Zenodo publishes. A file without a known checksum is downloaded with a
warning, and checked by its format and its number of examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from snopt.lab.data.errors import DataCorrupted
from snopt.lab.data.spec import Completeness, Kind, Preprocessing, Spec

__all__ = ["FORMS", "File", "Form", "Found", "Origin"]


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
        path: its place in the data folder.
        origin: where to download it; None if that is not possible.
        member: its name in the archive at ``origin``; None if ``origin`` is the file itself.
        checksum: of the file, if known.
    """

    path: str
    origin: Origin | None = None
    member: str | None = None
    checksum: str | None = None

    @property
    def own_checksum(self) -> str | None:
        """The checksum of the file itself, not of an archive that it is in."""
        if self.origin and self.member is None:
            return self.checksum or self.origin.checksum
        return self.checksum

    @property
    def verified(self) -> bool:
        """Whether a download of this file is checked against a known checksum."""
        return bool(self.checksum or (self.origin and self.origin.checksum))


@dataclass(frozen=True)
class Form:
    """Files that are enough to load a data set.

    Attributes:
        files: the files; all are needed.
        completeness: how much of the public data set they contain.
        note: one sentence on it.
        sizes: examples in the public training and test parts, if they are to be checked.
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
        longest: int | None = None,
    ) -> Spec:
        """Describe what was read from the files."""
        form = self.form
        return Spec(
            self.name, kind, shape, classes, longest, form.completeness, form.note, preprocessing
        )

    def check(self, train: int, test: int) -> None:
        """Refuse a number of examples that is not the public one, or too small to be split."""
        public = self.form.sizes
        if (public is None and train >= 10 and test >= 1) or public == (train, test):
            return
        expected = f"the public data set has {public[0]} and {public[1]}" if public else "too few"
        reason = f"there are {train} examples to train and {test} to test; {expected}"
        raise DataCorrupted(" or ".join(map(str, self.paths)), reason)


# ------------------------------------------------------------------------------- images


def _mnist(part: str, sha256: str) -> File:
    name = f"{part}-ubyte.gz"
    origin = Origin(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}", sha256)
    return File(f"mnist/{name}", origin)


_MNIST = Form(
    (
        _mnist(
            "train-images-idx3", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
        ),
        _mnist(
            "train-labels-idx1", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
        ),
        _mnist(
            "t10k-images-idx3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
        ),
        _mnist(
            "t10k-labels-idx1", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
        ),
    ),
    "whole",
    "The original files.",
    sizes=(60_000, 10_000),
)


def _svhn(part: str, sha256: str) -> File:
    url = f"https://ufldl.stanford.edu/housenumbers/{part}_32x32.mat"
    return File(f"svhn/{part}_32x32.mat", Origin(url, sha256))


_SVHN = (
    Form(
        (
            _svhn("train", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
            _svhn("test", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
        ),
        "whole",
        "The cropped digits, without the extra part.",
        sizes=(73_257, 26_032),
    ),
    Form(
        (File("svhn/train_32x32_subset.mat"), File("svhn/test_32x32_subset.mat")),
        "part",
        "A few hundred digits cropped again from the full-number images, "
        "of 73,257 to train and 26,032 to test.",
    ),
)

_CIFAR_ARCHIVE = Origin(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)


def _cifar(name: str, sha256: str | None = None) -> File:
    return File(f"cifar10/{name}.bin", _CIFAR_ARCHIVE, f"{name}.bin", sha256)


_CIFAR_FILES = (
    _cifar("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    _cifar("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    *(_cifar(f"data_batch_{i}") for i in range(2, 6)),
)
_CIFAR10 = (
    Form(_CIFAR_FILES, "whole", "The binary version.", sizes=(50_000, 10_000)),
    Form(_CIFAR_FILES[:2], "part", "The first of five training files, and the whole test file."),
)

# ------------------------------------------------------------------------------- series


def _uea(
    name: str, sizes: tuple[int, int], *, train: str | None = None, test: str | None = None
) -> Form:
    archive = Origin(f"https://www.timeseriesclassification.com/aeon-toolkit/{name}.zip")
    parts = (("TRAIN", train), ("TEST", test))
    return Form(
        tuple(
            File(f"{name}/{name}_{part}.ts", archive, f"{name}_{part}.ts", sha256)
            for part, sha256 in parts
        ),
        "whole",
        "As in the UEA archive.",
        sizes=sizes,
    )


_ARABIC_ARCHIVE = Origin("https://archive.ics.uci.edu/static/public/195/spoken+arabic+digit.zip")


def _arabic(part: str, sha256: str) -> File:
    name = f"{part}_Arabic_Digit.txt"
    return File(f"SpokenArabicDigits/{name}", _ARABIC_ARCHIVE, member=name, checksum=sha256)


_SPOKEN_ARABIC_DIGITS = (
    Form(
        (
            _arabic("Train", "cecd3ee9951658e5391f0342e9b6467ba7c0e7ecff5c9012b9c1ed9f81b97bc6"),
            _arabic("Test", "de40eac66ce18fca8924bad592002ee7ef646fc84d48b065ce21ac9f88946922"),
        ),
        "whole",
        "UCI's files; UEA's have one utterance fewer in each part.",
        sizes=(6_600, 2_200),
    ),
    _uea("SpokenArabicDigits", (6_599, 2_199)),
)
_ARTICULARY_WORD_RECOGNITION = _uea(
    "ArticularyWordRecognition",
    (275, 300),
    train="40c54640f20aa094115a47ad1f4745f5adcc08a65085659a4a042aee1c32a6d5",
    test="b4431c96e04310c55b8f50b6f93b0e20cfa019a2d25ab2a5c844e5e0b1375995",
)
_CHARACTER_TRAJECTORIES = _uea("CharacterTrajectories", (1_422, 1_436))

# ------------------------------------------------------------------------------- tables

_MAF_ARCHIVE = Origin(
    "https://zenodo.org/records/1161203/files/data.tar.gz", "md5:9b9c9b0375315ad270eba4ce80c093ab"
)


def _miniboone(part: str, sha256: str) -> File:
    return File(f"miniboone/{part}.npy", checksum=sha256)


_MINIBOONE = (
    Form(
        (File("miniboone/data.npy", _MAF_ARCHIVE, member="miniboone/data.npy"),),
        "whole",
        "The rows that Papamakarios et al. (2017) use.",
        sizes=(32_840, 3_648),
    ),
    Form((File("miniboone/data.h5"),), "whole", "The same rows as HDF5.", sizes=(32_840, 3_648)),
    Form(
        (
            _miniboone("val", "104f35c387c982cd550e5d6142e8b4075d746001508e65c1a90efcb83301839d"),
            _miniboone("test", "01b3fc605f334e951fed477a09a7fcd69cdc440d9204111ca253ecdf0e7590de"),
        ),
        "part",
        "The 29,556 training rows are missing: train and valid are the public validation part.",
        sizes=(3_284, 3_648),
    ),
)

_GAS_ARCHIVE = Origin(
    "https://archive.ics.uci.edu/static/public/322/gas+sensor+array+under+dynamic+gas+mixtures.zip"
)
# Rows to train and validate, and rows to test.
_GAS_SIZES = (946_859, 105_206)
_AIR_QUALITY = File(
    "gas_standin/AirQualityUCI.csv",
    checksum="13277ae5d8581e80b7be09d47c7d3d06fe9b8e957078f2cf6e859f955e62f996",
)
_GAS = (
    Form((File("gas/ethylene_CO.npy"),), "whole", "MAF's table as NumPy saves it.", _GAS_SIZES),
    Form((File("gas/ethylene_CO.h5"),), "whole", "MAF's table as HDF5.", _GAS_SIZES),
    Form(
        (File("gas/ethylene_CO.txt", _GAS_ARCHIVE, member="ethylene_CO.txt"),),
        "whole",
        "A random quarter of UCI's rows, as in MAF's table, but not the same quarter.",
        _GAS_SIZES,
    ),
    Form(
        (_AIR_QUALITY,),
        "stand-in",
        "UCI's Air Quality, eight columns too: results on it are not results on Gas.",
    ),
)

#: Every data set that is read from files, its forms best first.
FORMS: dict[str, tuple[Form, ...]] = {
    "mnist": (_MNIST,),
    "svhn": _SVHN,
    "cifar10": _CIFAR10,
    "spoken_arabic_digits": _SPOKEN_ARABIC_DIGITS,
    "articulary_word_recognition": (_ARTICULARY_WORD_RECOGNITION,),
    "character_trajectories": (_CHARACTER_TRAJECTORIES,),
    "gas": _GAS,
    "miniboone": _MINIBOONE,
}

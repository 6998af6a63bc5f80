"""Load, list, download and verify data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from snopt.base.errors import unknown
from snopt.lab.data import images, series, tables, toy
from snopt.lab.data.download import CHECKSUMS, default_root, matches, record_checksums
from snopt.lab.data.download import download as download_files
from snopt.lab.data.errors import DataCorrupted, DataNotFound, DownloadFailed
from snopt.lab.data.sources import FORMS, File, Form, Found, read_checksums
from snopt.lab.data.spec import Completeness, Kind, Preprocessing, Splits

#: Reads the files that were found (none for a generated data set).
Loader: TypeAlias = Callable[[Found, Preprocessing], Splits]
#: How a file compares with its known checksum.
Verdict: TypeAlias = Literal["correct", "different", "unknown"]

_GENERATED = (Form((), "generated", "Drawn with a fixed seed."),)


@dataclass(frozen=True)
class Entry:
    """A data set that can be loaded.

    Attributes:
        summary: description in one line.
        kind: kind of example.
        load: function that reads the data set.
        forms: sets of files to read it from, best first; default none, for generated data.
    """

    summary: str
    kind: Kind
    load: Loader
    forms: tuple[Form, ...] = _GENERATED


_ENTRIES: tuple[tuple[str, Kind, Loader, str], ...] = (
    ("mnist", "image", images.mnist, "handwritten digits, 28 x 28"),
    ("svhn", "image", images.svhn, "digits of house numbers, 32 x 32"),
    ("cifar10", "image", images.cifar10, "photos of ten classes, 32 x 32"),
    ("spoken_arabic_digits", "series", series.spoken_arabic_digits, "spoken digits, 13 channels"),
    ("articulary_word_recognition", "series", series.uea, "tongue and lip movements, 9 channels"),
    ("character_trajectories", "series", series.uea, "handwriting as pen movements, 3 channels"),
    ("gas", "table", tables.gas, "readings of gas sensors, 8 columns"),
    ("miniboone", "table", tables.miniboone, "a neutrino experiment, 43 columns"),
    ("circle", "table", toy.circle, "two concentric circles"),
    ("two_moons", "table", toy.two_moons, "two half circles"),
    ("spirals", "series", toy.spirals, "noisy plane spirals, 4 classes"),
    ("digits", "image", toy.digits, "handwritten digits, 8 x 8"),
)
#: Every data set. To add one, add an entry (docs/models.md), or `register` it from outside.
REGISTRY: dict[str, Entry] = {
    name: Entry(summary, kind, load, FORMS.get(name, _GENERATED))
    for name, kind, load, summary in _ENTRIES
}


def names() -> tuple[str, ...]:
    """Return the names that `load` accepts.

    Example:
        >>> "mnist" in names()
        True
    """
    return tuple(REGISTRY)


def register(name: str, entry: Entry) -> None:
    """Add a data set that can be loaded by name.

    Args:
        name: the name for `load`.
        entry: its description, and the function that reads or generates it.

    Raises:
        ValueError: the name belongs to another data set.

    Example:
        >>> import torch
        >>> from snopt.lab.data.spec import Batch, Dataset
        >>> def line(found, preprocessing):
        ...     spec = found.spec("table", (1,), preprocessing)
        ...     points = Dataset(Batch(torch.linspace(0, 1, 9)[:, None]), spec)
        ...     return Splits(points, points, points, spec)
        >>> register("line", Entry("points of a line", "table", line))
        >>> load("line").train[:2].x
        tensor([[0.0000], [0.1250]])
        >>> del REGISTRY["line"]
    """
    if REGISTRY.get(name, entry) != entry:
        raise ValueError(f"a data set {name!r} already exists; choose another name")
    REGISTRY[name] = entry


def load(
    name: str,
    root: Path | str | None = None,
    *,
    preprocessing: Preprocessing = "standard",
    download: bool = False,
) -> Splits:
    """Load a data set into memory.

    Args:
        name: one of `names`.
        root: the folder of data sets; ``$SNOPT_DATA`` when None, or else the user's cache folder.
        preprocessing: ``"standard"`` scales by the statistics of the training part and tests on the
            public test part; ``"paper"`` follows the authors' released loaders, including their
            errors (docs/models.md).
        download: download the files if they are missing.

    Returns:
        splits for training, validation and test; the same on every call.

    Raises:
        UnknownName: there is no such data set or preprocessing.
        DataNotFound: files are missing.
        DataCorrupted: a file does not have the expected content.

    Example:
        >>> import torch
        >>> splits = load("circle")
        >>> splits.spec.kind, splits.train[:3].x.shape
        ('table', torch.Size([3, 2]))
        >>> batch = next(splits.train.batches(128, generator=torch.Generator()))
        >>> len(batch)
        128
    """
    if preprocessing not in get_args(Preprocessing):
        raise unknown("preprocessing", preprocessing, get_args(Preprocessing))
    if download and _find(name, root) is None:
        fetch(name, root)
    found = _find(name, root)
    if found is None:
        raise DataNotFound(_not_found(name, _folder(root)))
    return _entry(name).load(found, preprocessing)


def fetch(name: str, root: Path | str | None = None, *, progress: bool = True) -> list[Path]:
    """Download the missing files of a data set.

    Files without a known checksum are read once, and removed if that fails. The SHA-256 of each
    file is recorded in ``SHA256SUMS`` in the data folder, for `verify`.

    Args:
        name: one of `names`.
        root: the folder of data sets, as for `load`.
        progress: show a bar for each download on standard error.

    Returns:
        the new files; none if nothing was missing, or if the data set needs no files.

    Raises:
        DownloadFailed: a download failed, or a file does not have the expected content. No such
            file is kept.
    """
    entry = _entry(name)
    form = _to_fetch(entry)
    if not form.files:  # generated, or part of a package
        return []
    folder = _folder(root)
    missing = _missing(form, folder)
    if not missing:  # the folder may be read-only
        return []
    new = download_files(missing, folder, progress=progress)
    if not all(file.verified for file in missing):
        try:
            entry.load(Found(name, folder, form), "standard")
        except DataCorrupted as error:
            for path in new:
                path.unlink()
            raise DownloadFailed(
                f"the files of {name} from {', '.join(_sources(form))} cannot be used: "
                f"{error.reason}. Nothing was kept."
            ) from error
    record_checksums(new, folder)
    return new


def verify(name: str, root: Path | str | None = None) -> dict[Path, Verdict]:
    """Compare the checksums of a data set's files with the known ones.

    `fetch` does this once, `load` does not. Known checksums are those in this package and those in
    the file ``SHA256SUMS`` of the data folder, where `fetch` records them.

    Args:
        name: one of `names`.
        root: the folder of data sets, as for `load`.

    Returns:
        for each existing file: ``"correct"``, ``"different"`` or ``"unknown"``.
    """
    files = {file.path: file for form in _entry(name).forms for file in form.files}
    if not files:  # no folder is needed
        return {}
    folder = _folder(root)
    recorded = read_checksums(folder / CHECKSUMS)

    def verdict(file: File) -> Verdict:
        known = file.own_checksum or recorded.get(file.path)
        if not known:
            return "unknown"
        return "correct" if matches(folder / file.path, known) else "different"

    there = [file for file in files.values() if (folder / file.path).is_file()]
    return {folder / file.path: verdict(file) for file in there}


@dataclass(frozen=True)
class Availability:
    """State of a data set on disk.

    Attributes:
        name: name for `load`.
        kind: kind of example.
        summary: description in one line.
        state: completeness of the files, or ``"missing"``.
        note: one sentence on the state.
        sources: the public addresses for `fetch`.
    """

    name: str
    kind: Kind
    summary: str
    state: Completeness | Literal["missing"]
    note: str
    sources: tuple[str, ...]


def available(root: Path | str | None = None) -> list[Availability]:
    """List all data sets, with their state on disk.

    Args:
        root: the folder of data sets, as for `load`.

    Example:
        >>> [row.name for row in available("nowhere") if row.state == "generated"]
        ['circle', 'two_moons', 'spirals']
    """
    rows = []
    for name, entry in REGISTRY.items():
        found = _find(name, root)
        state = found.form.completeness if found else "missing"
        note = found.form.note if found else "Some or all of its files are missing."
        sources = _sources(_to_fetch(entry))
        rows.append(Availability(name, entry.kind, entry.summary, state, note, sources))
    return rows


def _entry(name: str) -> Entry:
    if name not in REGISTRY:
        raise unknown("data set", name, REGISTRY)
    return REGISTRY[name]


def _folder(root: Path | str | None) -> Path:
    return default_root() if root is None else Path(root).expanduser()


def _missing(form: Form, folder: Path) -> list[File]:
    return [file for file in form.files if not (folder / file.path).is_file()]


def _find(name: str, root: Path | str | None) -> Found | None:
    """Return the best form whose files are all present."""
    for form in _entry(name).forms:
        # Without files neither the folder nor pooch is needed.
        folder = _folder(root) if form.files else Path()
        if not _missing(form, folder):
            return Found(name, folder, form)
    return None


def _to_fetch(entry: Entry) -> Form:
    """Return the best form that can be downloaded, or else the best form."""
    return next((form for form in entry.forms if form.downloadable), entry.forms[0])


def _sources(form: Form) -> tuple[str, ...]:
    """Return the distinct addresses of a form."""
    return tuple(dict.fromkeys(file.origin.url for file in form.files if file.origin))


def _not_found(name: str, folder: Path) -> str:
    """Return the message about missing files: which, from which folder, and where to get them."""
    entry = _entry(name)
    form = _to_fetch(entry)
    missing = ", ".join(file.path for file in _missing(form, folder))
    others = [[file.path for file in other.files] for other in entry.forms if other is not form]
    instead = "; or ".join(" and ".join(paths) for paths in others)
    return (
        f"{name} is not in {folder}: missing {missing}"
        + (f" (it can also be read from {instead})" if instead else "")
        + f". Public source: {', '.join(_sources(form))}. Download them with "
        f"`snopt data fetch {name}` or snopt.lab.data.fetch({name!r}), or put them there by hand; "
        "the environment variable SNOPT_DATA names another folder."
    )

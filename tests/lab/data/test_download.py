"""Downloads from a server of our own on this machine, through pooch."""

import hashlib
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from snopt.lab.cli.main import main
from snopt.lab.data import REGISTRY, DataCorrupted, DownloadFailed, fetch, load, verify
from snopt.lab.data.archives import extract
from snopt.lab.data.download import download
from snopt.lab.data.sources import FORMS, File, Form, Origin
from tests.lab.data.files import tar, write_mnist, write_uea, zipped


class Server:
    """Serves what is put into ``content``.

    ``cut``: send this much less than announced. ``pause``: seconds before every single byte.
    """

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.cut = 0
        self.pause = 0.0
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                content = outer.content.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                content = content[: len(content) - outer.cut]
                if not outer.pause:
                    self.wfile.write(content)
                    return
                with suppress(ConnectionError):
                    for i in range(len(content)):
                        time.sleep(outer.pause)
                        self.wfile.write(content[i : i + 1])

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def put(self, name: str, content: bytes, *, known: bool = True) -> Origin:
        self.content[f"/{name}"] = content
        return Origin(f"{self.url}/{name}", sha256(content) if known else None)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    thread = Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def everything_in(folder: Path) -> list[str]:
    """Every file but the lock of the downloads."""
    found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    return sorted(found - {".download/lock"})


# ------------------------------------------------------------------------------ download


def test_a_file_arrives_in_its_place(server, tmp_path, capsys):
    origin = server.put("a.bin", b"x" * 5000)
    new = download([File("one/two/a.bin", origin)], tmp_path)
    assert new == [tmp_path / "one/two/a.bin"]
    assert new[0].read_bytes() == b"x" * 5000
    assert everything_in(tmp_path) == ["one/two/a.bin"]
    assert "100%" in capsys.readouterr().err


def test_progress_can_be_silent(server, tmp_path, capsys):
    download([File("a", server.put("a", b"x"))], tmp_path, progress=False)
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


@pytest.mark.parametrize("there", [False, True])
def test_a_wrong_checksum_leaves_the_folder_as_it_was(server, tmp_path, there):
    if there:
        (tmp_path / "a").write_bytes(b"old")
    origin = replace(server.put("a", b"evil"), checksum=sha256(b"good"))
    with pytest.raises(DownloadFailed, match=r"127.0.0.1:\d+/a is not the expected file"):
        download([File("a", origin)], tmp_path)
    assert everything_in(tmp_path) == ["a"] * there


@pytest.mark.parametrize("known", [False, True])
def test_a_download_that_breaks_off_leaves_nothing(server, tmp_path, known):
    origin = server.put("a", b"x" * 5000, known=known)
    server.cut = 100
    with pytest.raises(DownloadFailed, match="Nothing was kept"):
        download([File("a", origin)], tmp_path)
    assert everything_in(tmp_path) == []


def test_an_address_that_is_gone_is_named(tmp_path, server):
    with pytest.raises(DownloadFailed, match=r"could not download .*/nothing: 404"):
        download([File("a", Origin(f"{server.url}/nothing"))], tmp_path)
    assert everything_in(tmp_path) == []


@pytest.mark.parametrize("pause", [0.02, 2.0])
def test_a_download_that_is_too_slow_fails(server, tmp_path, monkeypatch, pause):
    monkeypatch.setattr("snopt.lab.data.download.PATIENCE", 0.5)
    origin = server.put("a", b"x" * 5000)
    server.pause = pause
    begin = time.monotonic()
    with pytest.raises(DownloadFailed, match=r"bytes in \d+ seconds|timed out"):
        download([File("a", origin)], tmp_path)
    assert time.monotonic() - begin < 10
    assert everything_in(tmp_path) == []


def test_a_download_without_end_is_cut_off(server, tmp_path, monkeypatch):
    monkeypatch.setattr("snopt.lab.data.download.LARGEST_DOWNLOAD", 10_000)
    origin = server.put("a", b"x" * 1_000_000)
    with pytest.raises(DownloadFailed, match="larger than 10000 bytes"):
        download([File("a", origin)], tmp_path)
    assert everything_in(tmp_path) == []


def test_the_next_download_removes_what_a_killed_one_left(server, tmp_path):
    origin = server.put("a", b"x" * 100_000)
    server.pause = 0.001
    program = (
        "from pathlib import Path; from snopt.lab.data.download import *; "
        "from snopt.lab.data.sources import *; "
        f"download([File('a', Origin({origin.url!r}))], Path({str(tmp_path)!r}))"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: any((tmp_path / ".download/work").glob("*")))
    finally:
        child.kill()
        child.wait()
    assert everything_in(tmp_path) != []
    server.pause = 0.0
    download([File("b", server.put("b", b"y"))], tmp_path)
    assert everything_in(tmp_path) == ["b"]


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_a_connection_the_error_says_what_to_do(tmp_path, server):
    server.http.server_close()
    with pytest.raises(DownloadFailed, match=r"copy the files to the data folder"):
        download([File("a", Origin(f"{server.url}/a"))], tmp_path)


def test_an_archive_is_downloaded_once_for_all_its_files(server, tmp_path):
    origin = server.put("x.zip", zipped({"d/a.txt": b"A", "b.txt": b"B", "c.txt": b"C"}))
    files = [File(f"set/{n}.txt", origin, member=f"{n}.txt") for n in "ab"]
    download(files, tmp_path)
    assert server.requests == ["/x.zip"]
    assert everything_in(tmp_path) == ["set/a.txt", "set/b.txt"]


def test_the_checksum_of_a_file_in_an_archive_is_checked(server, tmp_path):
    origin = server.put("x.zip", zipped({"a.txt": b"A", "b.txt": b"evil"}), known=False)
    files = [
        File("a.txt", origin, member="a.txt", checksum=sha256(b"A")),
        File("b.txt", origin, member="b.txt", checksum=sha256(b"B")),
    ]
    with pytest.raises(DownloadFailed, match=r"b.txt from .* is not the expected file"):
        download(files, tmp_path)
    assert everything_in(tmp_path) == []


def test_what_has_no_known_checksum_is_announced(server, tmp_path):
    origin = server.put("a", b"x", known=False)
    digest = sha256(b"x")
    with pytest.warns(UserWarning, match=f"no checksum is known for a, .* sha256 {digest}"):
        download([File("a", origin)], tmp_path)


def test_pooch_is_asked_for_by_name(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"pip install 'snopt\[lab\]'"):
        download([File("a", Origin("http://127.0.0.1/a"))], tmp_path)


def test_a_file_without_address_is_not_downloaded(tmp_path):
    with pytest.raises(ValueError, match="no public address"):
        download([File("a")], tmp_path)


# ------------------------------------------------------------------------------ archives


@pytest.mark.parametrize("make", [tar, zipped])
@pytest.mark.parametrize("name", ["../../out/data.npy", "/out/data.npy", "./out/data.npy"])
def test_no_path_in_an_archive_leads_out_of_the_folder(tmp_path, make, name):
    archive = tmp_path / "inner/archive"
    archive.parent.mkdir()
    archive.write_bytes(make({name: b"content"}))
    path = extract(archive, "data.npy", tmp_path / "inner/to")
    assert path == tmp_path / "inner/to/data.npy"
    assert path.read_bytes() == b"content"
    assert everything_in(tmp_path) == ["inner/archive", "inner/to/data.npy"]


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tar({}, link=("data.npy", str(tmp_path / "secret"))))
    with pytest.raises(DataCorrupted, match=r"no file data\.npy"):
        extract(archive, "data.npy", tmp_path / "to")
    archive.write_bytes(tar({"real/data.npy": b"content"}, link=("data.npy", "/etc/passwd")))
    assert extract(archive, "data.npy", tmp_path / "to").read_bytes() == b"content"


def test_a_member_is_told_by_the_end_of_its_path(tmp_path):
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tar({"data/gas/data.npy": b"gas", "data/miniboone/data.npy": b"mini"}))
    assert extract(archive, "miniboone/data.npy", tmp_path).read_bytes() == b"mini"
    with pytest.raises(DataCorrupted, match=r"no file power/data\.npy"):
        extract(archive, "power/data.npy", tmp_path)


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_cut_archive_is_refused_and_leaves_nothing(tmp_path, make):
    content = make({"a.txt": bytes(range(256)) * 50})
    archive = tmp_path / "archive"
    for length in (0, 60, len(content) - 30):
        archive.write_bytes(content[:length])
        with pytest.raises(DataCorrupted, match="archive"):
            extract(archive, "a.txt", tmp_path / "to")
        assert list((tmp_path / "to").iterdir()) == []


def test_a_member_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("snopt.lab.data.archives.LARGEST_MEMBER", 1 << 20)
    (tmp_path / "a.zip").write_bytes(zipped({"a.txt": bytes(1 << 22)}))
    with pytest.raises(DataCorrupted, match=r"a\.txt in it is larger than 1048576 bytes"):
        extract(tmp_path / "a.zip", "a.txt", tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []


def test_a_name_of_many_bytes_in_an_archive_is_not_read(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(tar({"x" * (1 << 22): b"", "a.txt": b"A"}))
    tracemalloc.start()
    with pytest.raises(DataCorrupted, match="header of"):
        extract(tmp_path / "a.tar.gz", "a.txt", tmp_path / "to")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 21


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_methods_are_refused(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("a.txt", b"A")
    with pytest.raises(DataCorrupted, match=r"unsupported compression of a\.txt"):
        extract(tmp_path / "a.zip", "a.txt", tmp_path / "to")


# --------------------------------------------------------------------------------- fetch


def serve(monkeypatch, name: str, files: tuple[File, ...], sizes: tuple[int, int]) -> None:
    form = Form(files, "whole", "On this machine.", sizes)
    monkeypatch.setitem(REGISTRY, name, replace(REGISTRY[name], forms=(form,)))


@pytest.fixture
def served_mnist(server, tmp_path, monkeypatch) -> Server:
    write_mnist(tmp_path / "origin", (100, 20))
    files = [
        File(
            file.path,
            server.put(Path(file.path).name, (tmp_path / "origin" / file.path).read_bytes()),
        )
        for file in FORMS["mnist"][0].files
    ]
    serve(monkeypatch, "mnist", tuple(files), (100, 20))
    return server


def test_load_downloads_when_asked_and_then_works_offline(served_mnist, tmp_path):
    root = tmp_path / "cache"
    assert len(load("mnist", root, download=True).test) == 20
    assert len(served_mnist.requests) == 4
    load("mnist", root, download=True)
    load("mnist", root)
    assert len(served_mnist.requests) == 4


def test_fetch_gets_only_what_is_missing(served_mnist, tmp_path):
    assert len(fetch("mnist", tmp_path, progress=False)) == 4
    assert fetch("mnist", tmp_path, progress=False) == []
    path = tmp_path / "mnist/t10k-labels-idx1-ubyte.gz"
    path.unlink()
    assert fetch("mnist", tmp_path, progress=False) == [path]


def test_fetch_writes_nothing_if_all_files_are_there(served_mnist, tmp_path):
    write_mnist(tmp_path / "cache", (100, 20))
    assert fetch("mnist", tmp_path / "cache") == []
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mnist"]


def test_fetch_has_nothing_to_do_for_what_is_generated(tmp_path):
    assert fetch("circle", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def serve_trajectories(server, tmp_path, monkeypatch, cut=0):
    """Serve an archive without a known checksum; return its files and their contents."""
    write_uea(tmp_path / "origin", "CharacterTrajectories", 3, (6, 18), (40, 12))
    wanted = FORMS["character_trajectories"][0].files
    whole = {f.member: (tmp_path / "origin" / f.path).read_bytes() for f in wanted}
    members = {name: content[: len(content) - cut] for name, content in whole.items()}
    origin = server.put("x.zip", zipped(members), known=False)
    files = tuple(File(f.path, origin, member=f.member) for f in wanted)
    serve(monkeypatch, "character_trajectories", files, (40, 12))
    return wanted, members


@pytest.mark.filterwarnings("ignore:no checksum is known")
@pytest.mark.parametrize("whole", [True, False])
def test_what_cannot_be_verified_is_read_once_and_removed_if_bad(
    server, tmp_path, monkeypatch, whole
):
    serve_trajectories(server, tmp_path, monkeypatch, cut=0 if whole else 200)
    root = tmp_path / "cache"
    if whole:
        assert len(fetch("character_trajectories", root)) == 2
        assert len(load("character_trajectories", root).test) == 12
    else:
        with pytest.raises(DownloadFailed, match=r"cut short.*Nothing was kept"):
            fetch("character_trajectories", root)
        assert everything_in(root) == []


# -------------------------------------------------------------------------------- verify


def test_files_are_verified_on_request(served_mnist, tmp_path, capsys):
    root = tmp_path / "cache"
    assert main(["data", "verify", "mnist", "--root", str(root)]) == 0
    assert "no files to verify" in capsys.readouterr().out
    paths = fetch("mnist", root, progress=False)
    assert verify("mnist", root) == dict.fromkeys(paths, "correct")
    assert main(["data", "verify", "--root", str(root)]) == 0
    paths[0].write_bytes(b"other")
    assert verify("mnist", root)[paths[0]] == "different"
    capsys.readouterr()
    assert main(["data", "verify", "mnist", "--root", str(root)]) == 1
    assert f"different  {paths[0]}\ncorrect    {paths[1]}" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:no checksum is known")
def test_the_checksum_of_a_fetched_file_is_recorded(server, tmp_path, monkeypatch):
    wanted, members = serve_trajectories(server, tmp_path, monkeypatch)
    by_hand = tmp_path / "by_hand" / wanted[0].path
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(members[wanted[0].member])
    assert verify("character_trajectories", tmp_path / "by_hand") == {by_hand: "unknown"}
    root = tmp_path / "cache"
    one, two = fetch("character_trajectories", root)
    digests = [sha256(path.read_bytes()) for path in (one, two)]
    lines = [f"{digest}  {f.path}" for digest, f in zip(digests, wanted, strict=True)]
    assert (root / "SHA256SUMS").read_text().splitlines() == sorted(lines, key=lambda x: x[66:])
    two.write_bytes(b"other")
    assert verify("character_trajectories", root) == {one: "correct", two: "different"}


def test_every_source_has_an_address_with_encryption():
    files = [f for forms in FORMS.values() for form in forms for f in form.files]
    assert all(f.origin.url.startswith("https://") for f in files if f.origin)

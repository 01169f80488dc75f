"""Files are written whole, and nothing but regular files is replaced."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import MODELS

from poetc.backends.c.directory import write_generated
from poetc.cli import main
from poetc.errors import InputError
from poetc.files import write_whole


def test_new_and_existing_files(tmp_path: Path) -> None:
    target = tmp_path / "out.mlir"
    mask = os.umask(0o027)
    try:
        write_whole(target, "première")
    finally:
        os.umask(mask)
    assert target.read_text(encoding="utf-8") == "première"
    assert target.stat().st_mode & 0o777 == 0o640
    target.chmod(0o600)
    write_whole(str(target), "second")
    assert target.read_text() == "second" and target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["out.mlir"]


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_written_through(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    real, link = tmp_path / "data" / "real", tmp_path / "link"
    if exists:
        real.write_text("old")
    link.symlink_to("data/real")
    write_whole(link, "new")
    assert link.is_symlink() and real.read_text() == "new" and not real.is_symlink()
    assert [path.name for path in real.parent.iterdir()] == ["real"]


def test_fifo_is_written_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()), daemon=True)
    reader.start()
    write_whole(fifo, "text")
    assert fifo.is_fifo()
    reader.join(timeout=10)
    assert read == ["text"]


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no /dev/stdout")
@pytest.mark.parametrize("piped", [True, False])
def test_standard_output_by_name(piped: bool, tmp_path: Path) -> None:
    """In a file, too, between what is printed before and afterwards."""
    program = (
        "from poetc.files import write_whole\n"
        "print('before')\nwrite_whole('/dev/stdout', 'text\\n')\nprint('after')\n"
    )
    log = tmp_path / "log"
    log.write_text("earlier\n")
    with log.open("a") as file:
        run = subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE if piped else file,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert run.returncode == 0, run.stderr
    assert (run.stdout if piped else log.read_text().removeprefix("earlier\n")) == (
        "before\ntext\nafter\n"
    )


def test_names_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without a name"):
        write_whole("", "text")
    for name in (tmp_path, f"{tmp_path}/new/", f"{tmp_path}/."):
        with pytest.raises(InputError, match="a directory, not a file"):
            write_whole(name, "text")
    with pytest.raises(InputError, match="there is no directory"):
        write_whole(tmp_path / "missing" / "file", "text")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="symbolic links"):
        write_whole(tmp_path / "loop", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_nothing_is_left_of_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    target.write_text("old")

    def failing(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(InputError, match="No space left"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    """The first of them, for every kind of output, as the user wrote it."""
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("gone/there")
    for name, said in (
        ("fw/x", "there is no directory {}/fw"),
        ("fw/a/b/x", "there is no directory {}/fw"),
        ("file/a/x", "{}/file is not a directory"),
        ("link", "there is no directory {}/gone"),
    ):
        output = tmp_path / name
        expected = f"cannot write {output}: {said.format(tmp_path)}"
        for write in (lambda o: write_whole(o, "x"), lambda o: write_generated({"a": "x"}, o)):
            with pytest.raises(InputError) as error:
                write(output)
            assert str(error.value) == expected
        assert main([str(MODELS / "gesture_mlp.mlir"), "-o", str(output)]) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link"]

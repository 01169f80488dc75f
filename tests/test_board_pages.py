"""docs/boards/*.md, followed: files are written and commands run, as far as their tools are in the
registries; stand-ins take the place of the SDKs. What pages show of losses is what comes of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pages import ROOT, blocks, run_commands
from test_layouts import (
    ARDUINO_C,
    ARDUINO_CPP,
    CPP_WARNINGS,
    TESTS,
    WARNINGS,
    build_sample,
    on_a_line,
    run,
    sketch,
    train,
)

from poetc.backends.c.boards import CPU_FLAGS

STEPS = 20
PAGES = ("arduino-nano-33-ble", "esp-idf", "pico", "platformio", "zephyr")


def follow(page: str, directory: Path, **variables: str) -> str:
    """Writes the files of a page into a directory and runs its commands; the text of the page."""
    (directory / "examples").symlink_to(ROOT / "examples")
    for block in blocks(f"boards/{page}.md"):
        if block.file is not None:
            path = directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.kind == "sh" and not block.skipped:
            run_commands(block.text, directory, HOME=str(directory), **variables)
    return (ROOT / "docs" / "boards" / f"{page}.md").read_text()


def losses(printed: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss (\S+)", printed)}


def check_losses(text: str, printed: str) -> None:
    """What a program prints has what the page shows of it, which is less from first to last."""
    shown, found = losses(text), losses(printed)
    assert set(shown) == {1, STEPS} and set(found) == set(range(1, STEPS + 1))
    assert shown == {step: found[step] for step in shown} and shown[STEPS] < shown[1]


def check_serial(text: str, program: Path) -> None:
    """A board at the other end of the line trains as the page shows."""
    with on_a_line(program) as line:
        _, printed = train(line, program.with_suffix(".npz"), STEPS)
    (shown,) = re.findall(r"^ *(out0: .* steps)$", text, re.MULTILINE)
    assert shown in printed


def test_every_page_is_followed() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "boards").glob("*.md")}
    assert pages == set(PAGES)
    for page in pages:
        assert f"(boards/{page}.md)" in (ROOT / "docs" / "boards.md").read_text(), page


@pytest.mark.slow
def test_pico(tmp_path: Path) -> None:
    """For both boards; the same program on the host prints what the page shows."""
    stub = TESTS / "pico_stub"
    text = follow("pico", tmp_path, PICO_SDK_PATH=str(stub))
    for build, core in (("build", r"v8-M\.mainline"), ("build-rp2040", "v6S-M")):
        program = tmp_path / "pico" / build / "trainer"
        attributes = run("arm-none-eabi-readelf", "-A", program)
        assert re.search(rf"Tag_CPU_arch: {core}", attributes), attributes
        # Without an operating system there are no files.
        assert "poetc_file_store" not in run("arm-none-eabi-nm", program)
    configure = "cmake -S pico -B host -DPICO_PLATFORM=host && cmake --build host"
    run_commands(configure, tmp_path, PICO_SDK_PATH=str(stub))
    check_losses(text, run(tmp_path / "host" / "trainer"))


@pytest.mark.slow
def test_esp_idf(tmp_path: Path) -> None:
    stub = {"IDF_PATH": str(TESTS / "esp_stub")}
    text = follow("esp-idf", tmp_path, **stub)
    run_commands("cmake -S trainer -B build && cmake --build build", tmp_path, **stub)
    check_losses(text, run(tmp_path / "build" / "trainer"))


def build_arduino(library: Path, source: Path, directory: Path) -> Path:
    """Compiles a library and a sketch (C++) for a Cortex-M4F and for the host; the host's."""
    where = (f"-I{library / 'src'}", f"-I{source.parent}", f"-I{TESTS / 'arduino_stub'}")
    c = [*library.glob("src/*.c"), *source.parent.glob("*.c")]
    m4 = (*CPU_FLAGS["cortex-m4"], "-c", *where)
    run("arm-none-eabi-gcc", *m4, *ARDUINO_C, *WARNINGS, *c, cwd=directory)
    cpp = (*ARDUINO_CPP, *CPP_WARNINGS, "-ffreestanding")
    run("arm-none-eabi-g++", *m4, *cpp, source, cwd=directory)
    host = directory / "host"
    host.mkdir()
    run("gcc", "-std=gnu11", "-O1", *where, "-c", *c, cwd=host)
    run("ar", "rcs", "library.a", *host.glob("*.o"), cwd=host)
    core = (source, TESTS / "arduino_stub" / "core.cpp", host / "library.a")
    run("g++", "-O1", *where, *core, "-o", host / "board")
    return host / "board"


@pytest.mark.slow
def test_arduino_nano_33_ble(tmp_path: Path) -> None:
    text = follow("arduino-nano-33-ble", tmp_path)
    library = tmp_path / "Arduino" / "libraries" / "gesture"
    example = library / "examples" / "train_over_serial"
    source = sketch(library).rename(example / "sketch.cpp")
    check_serial(text, build_arduino(library, source, tmp_path))
    assert f"~/{example.relative_to(tmp_path)}" in text


@pytest.mark.slow
def test_platformio(tmp_path: Path) -> None:
    text = follow("platformio", tmp_path)
    library = tmp_path / "trainer" / "lib" / "gesture"
    # PlatformIO makes C++ of the sketch in src/.
    assert (tmp_path / "trainer" / "src" / "train_over_serial.ino").is_file()
    source = sketch(library).rename(tmp_path / "trainer" / "src" / "sketch.cpp")
    subprocess.run(["rm", "-r", library / "examples"], check=True)
    check_serial(text, build_arduino(library, source, tmp_path))


@pytest.mark.slow
def test_zephyr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = follow("zephyr", tmp_path)
    module = tmp_path / "gesture_module"
    assert "west build -b nrf52840dk/nrf52840 gesture_module/samples/train_over_serial" in text
    app = build_sample(module, tmp_path, monkeypatch)
    assert "CONFIG_POETC_GESTURE=y" in (tmp_path / ".config").read_text()
    check_serial(text, app)

"""Files of devices, cores and kinds of storage; `--storage`; `poetc devices`."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from poetc.cli import main
from poetc.costmodel import device as devices
from poetc.costmodel.cost import kernel_cost, pagein_cost, pageout_cost
from poetc.costmodel.device import (
    device_of,
    known_cores,
    known_devices,
    known_storages,
    load_core,
    load_device,
    load_storage,
    with_storage,
)
from poetc.errors import InputError
from poetc.kernels.analysis import Work

pytestmark = pytest.mark.usefixtures("whole")

ROOT = Path(__file__).parent.parent
GESTURE = str(ROOT / "examples" / "gesture_mlp.mlir")
FILES = sorted(Path(devices.__file__).parent.glob("*/*.toml"))
NUMBER = re.compile(r"(\w+) *= *[\d.e+_-]+(?: *#(?P<source>.*))?$")

# What the boards are sold as, in KB: written down a second time on purpose.
RAM_KB = {
    "arduino-nano-33-ble": 256,
    "esp32s3": 512,
    "nrf52840-dk": 256,
    "portenta-h7": 512,
    "rp2040": 264,
    "rp2350": 520,
    "rpi-zero-2": 512 * 1024,
    "rpi5": 8 * 1024 * 1024,
    "jetson-orin-nano": 8 * 1024 * 1024,
    "stm32f446": 128,
    "stm32f746": 320,
    "stm32h743": 512,
    "stm32l4r5": 640,
}
CLOCK_MHZ = {
    "arduino-nano-33-ble": 64,
    "esp32s3": 240,
    "rp2040": 125,
    "rp2350": 150,
    "stm32f446": 180,
    "stm32f746": 216,
    "stm32h743": 480,
    "stm32l4r5": 120,
    "stm32n657": 800,
}


def test_what_boards_have() -> None:
    assert {name: load_device(name).ram_bytes / 1024 for name in RAM_KB} == RAM_KB
    assert {name: load_device(name).clock_hz / 1e6 for name in CLOCK_MHZ} == CLOCK_MHZ


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_number_has_its_source(path: Path) -> None:
    """In its line, or in a comment above the numbers that it is for; and each mark is explained."""
    text = path.read_text()
    assert tomllib.loads(text)["name"] == path.stem
    head, *lines = re.split(r"\n\n", text, maxsplit=1)[0], *text.splitlines()
    above = False
    for line in lines:
        if found := NUMBER.fullmatch(line):
            source = (found["source"] or "").strip()
            assert source or above, line
            for mark in re.findall(r"\[[A-Z]\]", source):
                assert mark in head, f"{mark} in {line!r} is not explained"
        else:
            above = line.startswith("#")


@pytest.mark.parametrize("name", known_devices())
def test_costs_are_sane(name: str) -> None:
    device = load_device(name)
    work = kernel_cost(Work(adds=1_000_000), device)
    flop_nj = work.energy_nj / 1e6
    assert 1e-3 < flop_nj < 1000
    assert 1e3 < device.memory_bytes_per_s < 1e12 and device.flops_per_s < 1e10
    if device.clock_hz:
        # Scalar code: no more than an operation in a cycle on small cores, and four on the largest;
        # the memory of boards with caches is what a data sheet says of all cores.
        assert device.flops_per_s <= device.clock_hz * (
            4 if device.core.startswith("x86-64") else 1
        )
        assert device.memory_bytes_per_s <= 50 * device.clock_hz
    assert device.core == "" or load_core(device.core).fpu == (device.core not in NO_FPU)
    assert device.storage is not None
    for transfer in (pagein_cost(4096, device), pageout_cost(4096, device)):
        assert 0 < transfer.time_ns < 1e9 and transfer.energy_nj > 0


NO_FPU = ("cortex-m0", "cortex-m0plus", "cortex-m3")


def test_a_board_is_like_its_chip() -> None:
    chip, board = load_device("nrf52840"), load_device("arduino-nano-33-ble")
    work = Work(adds=12_345, load_bytes=999)
    assert kernel_cost(work, board) == kernel_cost(work, chip)
    assert (board.flash_bytes, board.storage) == (1 << 20, chip.storage)
    assert load_device("nrf52840-dk").storage == load_storage("qspi-nor")


def test_speeds_follow_from_core_and_clock(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\ndescription = "d"\nlike = "rp2350"\nclock_hz = 300e6\nstorage = "fram"\n'
    )
    mine, pico = load_device(str(path)), load_device("rp2350")
    assert mine.flops_per_s == pytest.approx(2 * pico.flops_per_s)
    assert mine.memory_bytes_per_s == pytest.approx(2 * pico.memory_bytes_per_s)
    assert mine.ram_bytes == pico.ram_bytes and mine.storage == load_storage("fram")
    # What the file says counts.
    path.write_text(path.read_text() + "flops_per_s = 5\n")
    assert load_device(str(path)).flops_per_s == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('like = "pico"\n', "mine.toml:3:1: like: unknown 'pico'; known are arduino-nano-33-ble, "),
        ('like = "rp2350"\ncore = "z80"\n', "mine.toml:4:1: core: unknown 'z80'; known are cor"),
        ('like = "rp2350"\nstorage = "tape"\n', "mine.toml:4:1: storage: unknown 'tape'; known ar"),
        ('like = "rp2350"\nclock_hz = "fast"\n', "mine.toml:4:1: clock_hz: must be a number"),
        ("like = 3\n", "mine.toml:3:1: like: must be a string, got 3"),
        ('core = "cortex-m4f"\n', "mine.toml: missing flops_per_s, memory_bytes_per_s, act"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\ndescription = "d"\n{text}')
    with pytest.raises(InputError) as caught:
        load_device(str(path))
    assert message in str(caught.value)


def test_a_file_that_is_like_another_needs_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('like = "rp2350"\n')
    with pytest.raises(InputError, match="missing name, description"):
        load_device(str(path))


def test_unknown_storage() -> None:
    kinds = "emmc, fram, microsd, psram, qspi-nor, sd-spi, sdio, and none"
    with pytest.raises(InputError, match=f"unknown storage 'tape'; known storages are {kinds} "):
        load_storage("tape")


def test_a_storage_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    fram = (Path(devices.__file__).parent / "storages" / "fram.toml").read_text()
    path.write_text(fram.replace('"fram"', '"mine"').replace("5e6 ", "1e6 "))
    mine = load_storage(str(path))
    assert (mine.name, mine.read_bytes_per_s) == ("mine", 1e6)
    path.write_text(fram.replace('name = "fram"\n', ""))
    with pytest.raises(InputError, match=r"mine.toml: missing name"):
        load_storage(str(path))
    path.write_text(fram.replace("write_unit_bytes = 16", "write_unit_bytes = 17"))
    with pytest.raises(InputError, match=r"mine.toml:\d+:1: write_unit_bytes: must be a power"):
        load_storage(str(path))


def test_the_storage_that_a_device_has_is_no_choice() -> None:
    device = load_device("nrf52840")
    assert with_storage(device, "sd-spi") == device == with_storage(device, None)
    assert with_storage(device, "none").storage is None


def test_a_profile_has_its_own_storage(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--storage=fram cannot go with a profile"):
        device_of(None, str(tmp_path / "p.toml"), "host", "fram")


# --storage


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().err)


def transfer_nj(bytes: int, latency_s: float, per_s: float, power_w: float) -> float:
    return (latency_s + bytes / per_s) * power_w * 1e9


@pytest.mark.slow
def test_costs_are_those_of_the_storage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One page-in and one page-out of 576 bytes and their CRC, by hand: data sheets of both."""
    scheduled = str(tmp_path / "fram.mlir")
    asked = (GESTURE, "--ram=9600", "--time-limit=5")
    card = report(capsys, *asked, "-o", str(tmp_path / "card.mlir"))
    fram = report(capsys, *asked, "--storage=fram", "-o", scheduled)
    for found in (card, fram):
        assert (found["page_ins"], found["page_outs"]) == (1, 1)
    # The card moves two blocks of 512 bytes, FRAM 580 bytes over 1 bit at 40 MHz.
    of_card = transfer_nj(1024, 1.09e-4, 4.61651e6, 0.33) + transfer_nj(1024, 1.13e-4, 4.44e6, 0.33)
    of_fram = transfer_nj(580, 32 / 40e6, 40e6 / 8, 0.0024 * 3.3)
    of_fram += transfer_nj(580, 40 / 40e6, 40e6 / 8, 0.0024 * 3.3)
    saved_nj = card["energy_nj"] - fram["energy_nj"]  # type: ignore[operator]
    assert saved_nj == pytest.approx(of_card - of_fram, abs=4)
    assert fram["device"] == "nrf52840, storage fram"

    # Read again, it has the same costs; and is for no other storage.
    again = report(capsys, scheduled, "-o", str(tmp_path / "again.mlir"))
    for key in ("device", "energy_nj", "time_ns", "timeline"):
        assert again[key] == fram[key], key
    assert report(capsys, scheduled, "--storage=fram", "-o", str(tmp_path / "x")) == again
    for other in ("psram", "sd-spi", "none"):
        assert main([scheduled, f"--storage={other}"]) == 2
        assert f"for storage fram, but --storage={other} is" in capsys.readouterr().err
    assert main([str(tmp_path / "card.mlir"), "--storage=fram"]) == 2
    assert "for storage of the device, but --storage=fram is" in capsys.readouterr().err
    assert report(capsys, str(tmp_path / "card.mlir"), "--storage=sd-spi", "-o", scheduled)


@pytest.mark.slow
def test_a_schedule_for_storage_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, scheduled = tmp_path / "mine.toml", str(tmp_path / "mine.mlir")
    fram = (Path(devices.__file__).parent / "storages" / "fram.toml").read_text()
    path.write_text(fram.replace('"fram"', '"mine"').replace("5e6 ", "1e6 "))
    asked = ("--device=rp2350", f"--storage={path}", "--time-limit=5")
    found = report(capsys, GESTURE, "--ram=9600", *asked, "-o", scheduled)
    assert main([scheduled, "-q", "-o", str(tmp_path / "x")]) == 0
    said = capsys.readouterr().err
    assert "scheduled for storage mine; --storage=FILE.toml describes it" in said
    again = report(capsys, scheduled, f"--storage={path}", "-o", str(tmp_path / "x"))
    assert again["device"] == found["device"] == "rp2350, storage mine"
    assert again["energy_nj"] == found["energy_nj"]


@pytest.mark.slow
def test_without_storage_nothing_is_paged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = str(tmp_path / "out.mlir")
    asked = (GESTURE, "--ram=10008", "--storage=none", "--time-limit=5", "-o", output)
    found = report(capsys, *asked)
    assert (found["page_ins"], found["device"]) == (0, "nrf52840, storage none")
    assert report(capsys, output, "-o", str(tmp_path / "x"))["device"] == found["device"]
    assert main([GESTURE, "--params=storage", "--storage=none"]) == 2
    assert "--params=storage cannot go with --storage=none" in capsys.readouterr().err


@pytest.mark.slow
def test_the_pass_has_it_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    front = "stablehlo-simplify,stablehlo-to-poet,poet-fuse,poet-lower-kernels"
    after = "poet-plan-transfers{device=nrf52840 storage=fram},poet-plan-memory,poet-verify"
    for options, code in (("device=nrf52840 ", 0), ("", 2)):
        schedule = f"poet-schedule{{{options}storage=fram ram=8544 time_limit=5}}"
        costs = "poet-annotate{device=nrf52840},poet-order"
        passes = f"--passes={front},{costs},{schedule},{after}"
        assert main([GESTURE, passes, "-o", str(tmp_path / "out.mlir")]) == code
    assert "storage=fram needs a device" in capsys.readouterr().err
    assert 'storage = "fram"' in (tmp_path / "out.mlir").read_text()


# poetc devices


def test_the_command_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    devices_table, storages_table = capsys.readouterr().out.split("\n\n")
    first = [line.split()[0] for line in devices_table.splitlines()]
    assert first == ["device", *known_devices()]
    assert [x.split()[0] for x in storages_table.splitlines()] == ["storage", *known_storages()]
    pico = next(line for line in devices_table.splitlines() if line.startswith("rp2350"))
    assert re.split(r"  +", pico)[1:7] == [
        *("520 KB", "4 MB", "cortex-m33f", "150 MHz", "yes", "sd-spi")
    ]
    assert main(["devices", "extra"]) == 2


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("vector_floats", "3", "must be a power of two of at most 64, got 3"),
        ("vector_floats", "128", "must be a power of two of at most 64, got 128"),
        ("vector_floats", "0", "must be positive, got 0"),
        ("vector_floats", "8.0", "must be an integer, got 8.0"),
        ("load_floats", "16", "must be a power of two of at most 8, got 16"),
    ],
)
def test_registers_that_no_core_has_are_refused(
    key: str, value: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "core.toml"
    path.write_text(f'name = "core"\nlike = "cortex-m4f"\nmore_cycles = 1.0\n{key} = {value}\n')
    with pytest.raises(InputError) as error:
        load_core(str(path))
    assert str(error.value) == f"{path}:4:1: {key}: {reason}"


def test_every_core_is_used() -> None:
    assert set(known_cores()) == {load_device(name).core for name in known_devices()} - {""}


def test_the_document_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    assert runpy.run_path(str(ROOT / "docs" / "devices_table.py"))["main"](["--check"]) == 0

"""Device files, and the time and energy that follow from them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import func

from poetc.costmodel.cost import (
    MAX_COST,
    Cost,
    kernel_cost,
    pagein_cost,
    pageout_cost,
    roofline_cost,
    work_counts,
)
from poetc.costmodel.device import Cycles, Device, Storage, known_devices, load_core, load_device
from poetc.errors import InputError
from poetc.ir.text import parse_module
from poetc.kernels.analysis import Work, math_flops
from poetc.kernels.analysis import work as work_of
from poetc.kernels.arrange import Machine, arranged
from poetc.kernels.lanes import LANES
from poetc.kernels.together import TOGETHER
from poetc.passes.poet_annotate import annotate

STORAGE = Storage(
    read_latency_s=1e-3,
    read_bytes_per_s=1e6,
    write_latency_s=2e-3,
    write_bytes_per_s=5e5,
    power_w=0.5,
    block_bytes=512,
)
DEVICE = Device(
    name="test",
    description="round numbers",
    flops_per_s=1e6,
    memory_bytes_per_s=1e7,
    active_power_w=2.0,
    idle_power_w=0.001,
    ram_bytes=1024,
    alignment_bytes=4,
    dma=True,
    storage=STORAGE,
)
FILE = """\
name = "board"
description = "a board"
flops_per_s = 1e6
memory_bytes_per_s = 1e7
active_power_w = 1
idle_power_w = 0
ram_bytes = 1024
alignment_bytes = 4
dma = false

[storage]
read_latency_s = 0
read_bytes_per_s = 1e6
write_latency_s = 0.5
write_bytes_per_s = 1_000_000
power_w = 0.1
block_bytes = 512
"""


def work(flops=0, load_bytes=0, store_bytes=0):
    return Work(adds=flops, load_bytes=load_bytes, store_bytes=store_bytes)


# Devices

DEVICES = tuple(map(load_device, known_devices()))


@pytest.mark.parametrize("name", known_devices())
def test_known_device_loads(name):
    device = load_device(name)
    assert device.name == name
    assert device.storage is not None


def test_published_figures():
    mkr1000, nrf52840, rpi4b = map(load_device, ("mkr1000", "nrf52840", "rpi4b"))
    assert mkr1000.ram_bytes == 32 * 1024
    assert nrf52840.ram_bytes == 256 * 1024
    # FLOP per joule follow from power and speed, as the POET paper states them.
    assert mkr1000.flops_per_s / mkr1000.active_power_w == pytest.approx(2.52525e6, rel=1e-5)
    assert nrf52840.active_power_w == pytest.approx(6.36991e6 / 5.80011e8, rel=1e-5)
    assert rpi4b.flops_per_s / rpi4b.active_power_w == pytest.approx(4.01158e7, rel=1e-5)


def test_device_file(tmp_path):
    path = tmp_path / "board.toml"
    path.write_text(FILE)
    device = load_device(str(path))
    assert device.name == "board"
    assert device.active_power_w == 1.0
    assert isinstance(device.active_power_w, float)
    assert device.storage == Storage(0.0, 1e6, 0.5, 1e6, 0.1, 512)


def test_device_without_storage(tmp_path):
    path = tmp_path / "board.toml"
    path.write_text(FILE[: FILE.index("[storage]")])
    device = load_device(str(path))
    assert device.storage is None
    with pytest.raises(InputError, match="device board has no auxiliary storage"):
        pagein_cost(4, device)


def test_unknown_device():
    with pytest.raises(
        InputError, match="unknown device 'mkr'; known devices are arduino-nano-33-ble, esp32s3"
    ):
        load_device("mkr")


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"cannot read device file .*none.toml: No such file"):
        load_device(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="cannot read device file"):
        load_device(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ram_bytes", "rom_bytes", "board.toml:7:1: rom_bytes: unknown key; known are name, desc"),
        ("power_w = 0.1", "watts = 0.1", "board.toml:16:1: storage.watts: unknown key"),
        ("[storage]", "[disk]", "board.toml:11:1: disk: unknown key"),
        ("ram_bytes = 1024\n", "", "board.toml: missing ram_bytes"),
        ("power_w = 0.1\n", "", "board.toml: missing power_w in [storage]"),
        ("= 1024", '= "1024"', "board.toml:7:1: ram_bytes: must be an integer, got '1024'"),
        ("= 1024", "= 1024.0", "board.toml:7:1: ram_bytes: must be an integer, got 1024.0"),
        ("= 1024", "= true", "board.toml:7:1: ram_bytes: must be an integer, got true"),
        ("= false", "= 1", "board.toml:9:1: dma: must be true or false, got 1"),
        ('"board"', "3", "board.toml:1:1: name: must be a string, got 3"),
        ("y_s = 0.5", 'y_s = "x"', "board.toml:14:1: storage.write_latency_s: must be a number"),
        ("r_w = 1\n", "r_w = -1\n", "board.toml:5:1: active_power_w: must be positive, got -1"),
        ("y_s = 0.5", "y_s = -1", "board.toml:14:1: storage.write_latency_s: must be not negative"),
        ("d_bytes_per_s = 1e6", "d_bytes_per_s = 0", "board.toml:13:1: storage.read_bytes_per_s"),
        ("flops_per_s = 1e6", "flops_per_s = 0", "board.toml:3:1: flops_per_s: must be positive"),
        ("flops_per_s = 1e6", "flops_per_s = nan", "board.toml:3:1: flops_per_s: must be finite"),
        ("bytes = 4", "bytes = 3", "board.toml:8:1: alignment_bytes: must be a power of two"),
        (
            "ram_bytes = 1024",
            "ram_bytes = 1024\ncache_line_bytes = 48",
            "board.toml:8:1: cache_line_bytes: must be a power of two and at least 4, got 48",
        ),
        ("ram_bytes = 1024", "ram_bytes = 1024\ncache_line_bytes = 2", "and at least 4, got 2"),
        ("= 1024", "= " + "9" * 5000, "board.toml is not valid: Exceeds the limit"),
        (
            "= 1024",
            "= 0x" + "f" * 5000,
            "board.toml:7:1: ram_bytes: must be finite, got an integer",
        ),
        ("= 1024", "= 9007199254740993", "board.toml:7:1: ram_bytes: must be at most 90071992"),
        (
            "flops_per_s = 1e6",
            "flops_per_s = 1" + "0" * 400,
            "board.toml:3:1: flops_per_s: must be",
        ),
        (
            "_w = 0\n",
            "_w = 1e300\n",
            "board.toml:6:1: idle_power_w: must be at most 9007199, got 1e",
        ),
        ("false", "[0x" + "f" * 5000 + "]", "dma: must be true or false, got an array"),
        ("false", "[" * 50_000, "board.toml is not valid: nested too deeply"),
        ("dma = false", "dma = maybe", "board.toml:9:7: not valid TOML: Invalid value"),
        ("dma = false", "dma = false\ndma = true", "board.toml:10:11: not valid TOML: Cannot over"),
        ("block_bytes = 512\n", "block_bytes = [", "board.toml:17:1: not valid TOML"),
        (
            "block_bytes = 512\n",
            "block_bytes = 512\nwrite_unit_bytes = 48",
            "board.toml:18:1: storage.write_unit_bytes: must be a power of two and at least 16",
        ),
        (
            "block_bytes = 512\n",
            "block_bytes = 512\nwrite_unit_bytes = 8",
            "storage.write_unit_bytes: must be a power of two and at least 16, got 8",
        ),
    ],
)
def test_broken_device_file(tmp_path, old, new, message):
    assert old in FILE
    path = tmp_path / "board.toml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_device(str(path))
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_write_unit_may_be_left_out(tmp_path):
    path = tmp_path / "board.toml"
    path.write_text(FILE)
    storage = load_device(str(path)).storage
    assert storage is not None and storage.write_unit_bytes == 512
    path.write_text(FILE + "write_unit_bytes = 4096\n")
    storage = load_device(str(path)).storage
    assert storage is not None and storage.write_unit_bytes == 4096


def test_storage_must_be_a_table(tmp_path):
    path = tmp_path / "board.toml"
    path.write_text(FILE[: FILE.index("[storage]")] + "storage = 5\n")
    with pytest.raises(
        InputError,
        match=r"board.toml:11:1: storage: must be a table or the name of a kind of storage, got 5",
    ):
        load_device(str(path))


def test_a_directory_separator_makes_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "board").write_text(FILE)
    assert load_device("./board").name == "board"
    with pytest.raises(InputError, match=r"cannot read device file .*embedded null"):
        load_device("./bo\0ard")


def test_device_file_must_be_text(tmp_path):
    path = tmp_path / "board.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_device(str(path))


# Costs


def test_kernel_limited_by_arithmetic():
    # 1000 operations at 1e6 a second, 800 bytes at 1e7 a second.
    assert kernel_cost(work(1000, 400, 400), DEVICE) == Cost(time_ns=1_000_000, energy_nj=2_000_000)


def test_kernel_limited_by_memory():
    assert kernel_cost(work(0, 600, 400), DEVICE) == Cost(time_ns=100_000, energy_nj=200_000)


COUNTED = Cycles(1.0, 10.0, 1e2, 5e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)


@pytest.mark.parametrize(
    ("done", "cycles"),
    [
        (Work(loads=3, load_bytes=12), 3),
        (Work(stores=3, store_bytes=24), 30),
        (Work(adds=2, muls=4), 600),
        (Work(adds=2, muls=4, chained=5), 2_600),
        (Work(compares=7), 7_000),
        (Work(divs=2), 20_000),
        # A call, and the operations in it.
        (Work(math=(("exp", 2),)), 200_000 + 200 * math_flops("exp")),
        (Work(int_ops=9), 9_000_000),
        (Work(guards=5), 50_000_000),
        (Work(iterations=6, loops=2), 2_600_000_000),
    ],
)
def test_a_kernel_takes_the_cycles_of_what_it_does(done: Work, cycles: int) -> None:
    device = replace(DEVICE, cycles=COUNTED, clock_hz=1e6)
    # At 1 MHz, a cycle takes 1000 ns and, at 2 W, 2000 nJ.
    assert kernel_cost(done, device) == Cost(1000 * cycles, 2000 * cycles)
    # Where the loops are not known, only speeds are of use.
    assert roofline_cost(1000, 800, device) == Cost(time_ns=1_000_000, energy_nj=2_000_000)


def test_a_device_that_says_its_speed_goes_by_it(tmp_path):
    path = tmp_path / "board.toml"
    path.write_text('name = "b"\ndescription = "d"\nlike = "nrf52840"\n')
    assert load_device(str(path)).cycles == load_core("cortex-m4f").cycles is not None
    path.write_text(path.read_text() + "flops_per_s = 1e6\n")
    assert load_device(str(path)).cycles is None
    assert kernel_cost(Work(adds=1000, loops=5), load_device(str(path))).time_ns == 1_000_000


def test_a_core_like_another_takes_more_or_less():
    base, like = load_core("cortex-m4f"), load_core("cortex-m7f")
    assert base.cycles is not None and like.cycles is not None
    ratio = 3.42 / 5.01
    assert like.cycles.load == pytest.approx(ratio * base.cycles.load, rel=1e-3)
    assert like.cycles.loop == pytest.approx(ratio * base.cycles.loop, rel=1e-3)
    assert like.cycles_per_flop == pytest.approx(ratio * base.cycles_per_flop, rel=1e-3)
    assert like.memory_bytes_per_cycle == pytest.approx(base.memory_bytes_per_cycle / ratio, 1e-3)


def test_costs_are_at_least_one():
    assert kernel_cost(work(), DEVICE) == Cost(1, 1)
    fast = replace(DEVICE, flops_per_s=1e15, active_power_w=1e-9)
    assert kernel_cost(work(1), fast) == Cost(1, 1)


def test_transfers_move_whole_blocks():
    one = Cost(time_ns=1_512_000, energy_nj=756_000)
    assert pagein_cost(1, DEVICE) == one
    assert pagein_cost(512, DEVICE) == one
    assert pagein_cost(513, DEVICE) == Cost(time_ns=2_024_000, energy_nj=1_012_000)
    assert pageout_cost(512, DEVICE) == Cost(time_ns=3_024_000, energy_nj=1_512_000)


def test_without_dma_the_processor_is_active_during_a_transfer():
    slow = replace(DEVICE, dma=False)
    assert pagein_cost(512, slow).time_ns == pagein_cost(512, DEVICE).time_ns
    assert pagein_cost(512, slow).energy_nj == 5 * pagein_cost(512, DEVICE).energy_nj


@pytest.mark.parametrize(
    ("device", "key"),
    [
        ({"flops_per_s": 1e-300}, "flops_per_s"),
        ({"flops_per_s": 5e-324}, "flops_per_s"),
        ({"memory_bytes_per_s": 1e-12}, "memory_bytes_per_s"),
        ({"active_power_w": 1e19}, "active_power_w"),
        ({"active_power_w": 1e308}, "active_power_w"),
        ({"idle_power_w": 1e300}, "idle_power_w"),
    ],
)
def test_kernel_cost_too_large(device, key):
    device = replace(DEVICE, name="slow", **device)
    with pytest.raises(InputError, match=f"^device slow: .*: look at {key}$"):
        kernel_cost(work(1000, 400, 400), device)


@pytest.mark.parametrize("transfer", [pagein_cost, pageout_cost])
@pytest.mark.parametrize(
    ("storage", "dma", "key"),
    [
        ({"read_latency_s": 1e300, "write_latency_s": 1e300}, True, r"storage.\w*_latency_s"),
        ({"read_bytes_per_s": 1e-9, "write_bytes_per_s": 5e-324}, True, r"storage.\w*_bytes_per_s"),
        ({"power_w": 1e300}, True, "storage.power_w"),
        ({"power_w": 1e300}, False, "storage.power_w"),
    ],
)
def test_transfer_cost_too_large(transfer, storage, dma, key):
    device = replace(DEVICE, name="slow", storage=replace(STORAGE, **storage), dma=dma)
    with pytest.raises(InputError, match=f"^device slow: .*: look at {key}$"):
        transfer(4, device)


def test_costs_up_to_the_limit():
    slow = replace(DEVICE, idle_power_w=0.0, active_power_w=1.0, flops_per_s=1.0)
    most_s = MAX_COST // 10**9
    assert kernel_cost(work(most_s), slow) == Cost(most_s * 10**9, most_s * 10**9)
    with pytest.raises(
        InputError, match=r"9.01e.15 ns, more than 9.01e.15 ns: look at flops_per_s"
    ):
        kernel_cost(work(most_s + 1), slow)


@pytest.mark.slow
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_work_never_costs_less(flops, load_bytes, more):
    for device in DEVICES:
        less = kernel_cost(work(flops, load_bytes), device)
        assert kernel_cost(work(flops + more, load_bytes), device) >= less
        assert kernel_cost(work(flops, load_bytes, more), device) >= less
        assert kernel_cost(Work(adds=flops, loads=more), device) >= kernel_cost(work(flops), device)
        assert pagein_cost(load_bytes + more, device) >= pagein_cost(load_bytes, device)


# The pass


def test_annotate_names_the_compute_without_a_kernel():
    text = """poet.graph @main(%x: tensor<f32>) -> tensor<f32> {
      %y = poet.compute "negate" (%a = %x : tensor<f32>) -> tensor<f32> {
        %0 = stablehlo.negate %a : tensor<f32>
        poet.yield %0 : tensor<f32>
      }
      poet.return %y : tensor<f32>
    }"""
    with pytest.raises(InputError) as caught:
        annotate(parse_module(text, "test.mlir"), DEVICE)
    assert 'poet.compute "negate": it has no kernel' in str(caught.value)
    assert str(caught.value.location).startswith("test.mlir:2:")


@pytest.mark.parametrize(
    ("machine", "shares"),
    [
        (Machine(lanes=8), {"chained": 8, "load": 8, "store": 8, "iteration": 8}),
        (Machine(load_floats=4), {"chained": 1, "load": 1.5, "store": 4, "iteration": 1}),
    ],
)
def test_what_one_instruction_does_costs_once(machine: Machine, shares: dict[str, float]):
    """Against the same loops without the attributes that say what one instruction does."""
    text = """
func.func private @sums(%x: memref<16xf32>, %w: memref<16x64xf32>, %o: memref<64xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 64 {
    %s = affine.for %r = 0 to 16 iter_args(%acc = %zero) -> (f32) {
      %a = affine.load %x[%r] : memref<16xf32>
      %b = affine.load %w[%r, %i] : memref<16x64xf32>
      %p = arith.mulf %a, %b : f32
      %q = arith.addf %acc, %p : f32
      affine.yield %q : f32
    }
    affine.store %s, %o[%i] : memref<64xf32>
  }
  func.return
}
"""
    (function,) = parse_module(text, "sums").ops
    assert isinstance(function, func.FuncOp)
    new = arranged(function, machine)
    plain = new.clone()
    for op in plain.walk():
        for name in (LANES, TOGETHER):
            op.attributes.pop(name, None)
    found, without = work_of(new), work_of(plain)
    assert found.flops == without.flops == 2 * 16 * 64
    fewer, all_of_them = work_counts(found), work_counts(without)
    for name, share in shares.items():
        assert fewer[name] * share <= all_of_them[name], name
    for name in fewer.keys() - shares.keys():
        assert fewer[name] == all_of_them[name], name

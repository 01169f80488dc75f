"""A CMake project whose target is the library; the example is built if asked for."""

from __future__ import annotations

from poetc.backends.c.libraries.library import (
    MARK,
    OPTIONS,
    Library,
    include_and_src,
    sources,
    wrapped_list,
)
from poetc.backends.c.libraries.step import COMPARE, DIRECTORY, IMAGE, STORAGE, StepFiles
from poetc.compare import TOLERANCE
from poetc.errors import InputError

_RESERVED = {"all", "clean", "edit_cache", "help", "install", "package", "rebuild_cache", "test"}
"""Targets that CMake has by itself."""


def check_name(name: str) -> None:
    """Raises InputError for the name of a target that exists already."""
    if name in _RESERVED:
        raise InputError(f"{name!r} cannot be the name of a CMake target: CMake has one of its own")


def arrange(library: Library) -> dict[str, str]:
    """`CMakeLists.txt`, `include/`, `src/`, and the example in `example/`."""
    name, macro = library.name, library.macro
    core = include_and_src(library.core_files())
    file, thread = (include_and_src(library.unit(u)) for u in ("store_file", "store_thread"))
    run, compares = "", {}
    if library.step is not None:
        run = _run_target(library, library.step)
        compares = {f"example/{file}": text for file, text in library.step.sources.items()}
    text = f"""\
# {MARK} The training step of {name} as a library: the target poetc::{name}.
#
#     add_subdirectory(DIRECTORY)       or, once installed,       find_package({name} REQUIRED)
#     target_link_libraries(PROGRAM PRIVATE poetc::{name})
cmake_minimum_required(VERSION 3.15)
project({name} LANGUAGES C)

set({macro}_HOSTED ON)
if(CMAKE_SYSTEM_NAME STREQUAL "Generic") # no operating system
    set({macro}_HOSTED OFF)
endif()
set({macro}_ALONE OFF)
if({macro}_HOSTED AND CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    set({macro}_ALONE ON)
endif()
option({macro}_STORE_FILE "The page store in a file, which needs a C library" ${{{macro}_HOSTED}})
option({macro}_STORE_THREAD "The page store in a thread, which needs POSIX threads" OFF)
option({macro}_EXAMPLE "The example program" ${{{macro}_ALONE}})

add_library({name} STATIC
{wrapped_list(sources(core))}
)
add_library(poetc::{name} ALIAS {name})
if({macro}_STORE_FILE)
    target_sources({name} PRIVATE {" ".join(sources(file))})
endif()
if({macro}_STORE_THREAD)
    target_sources({name} PRIVATE {" ".join(sources(thread))})
    target_compile_options({name} PUBLIC -pthread)
    target_link_options({name} PUBLIC -pthread)
endif()
target_include_directories({name} PUBLIC
    $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}/include> $<INSTALL_INTERFACE:include/{name}>
)
set_target_properties({name} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)

# Expressions that are changed, and multiplications and additions that are fused, give other bits.
# Bytes of the arena hold floats and integers by turns, which link-time optimisation must know.
# A program that is linked with -ffast-math would make all denormal floats zero.
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options({name} PRIVATE {" ".join(OPTIONS)})
    target_link_options({name} PUBLIC -fno-fast-math)
else()
    message(WARNING "{name}: make sure that ${{CMAKE_C_COMPILER_ID}} does not fuse multiplications "
        "and additions, or results differ in the last bits between targets")
endif()

if({macro}_EXAMPLE)
    if(NOT {macro}_STORE_FILE)
        message(FATAL_ERROR "{name}: the example needs {macro}_STORE_FILE")
    endif()
    add_executable({name}_example example/main.c)
    target_link_libraries({name}_example PRIVATE {name})
    if({macro}_STORE_THREAD)
        target_compile_definitions({name}_example PRIVATE POETC_STORE_THREAD)
    endif()
    set_target_properties({name}_example PROPERTIES
        C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    )
{run}endif()

install(TARGETS {name} EXPORT {name} ARCHIVE DESTINATION lib)
install(DIRECTORY include/ DESTINATION include/{name})
install(EXPORT {name} NAMESPACE poetc:: FILE {name}-config.cmake DESTINATION lib/cmake/{name})
"""
    return {
        **core,
        **file,
        **thread,
        **library.described_files(),
        "example/main.c": library.files["main.c"],
        **compares,
        "CMakeLists.txt": text,
    }


def _run_target(library: Library, step: StepFiles) -> str:
    """Runs a step on a copy of the data that come with the program."""
    name = library.name
    compare = compiled = ""
    store = f" {DIRECTORY}/{STORAGE}" if step.stored else ""
    copy = ""
    if step.stored:
        image = f"{DIRECTORY}/{IMAGE}"
        copy = f"\n        COMMAND ${{CMAKE_COMMAND}} -E copy {image} {DIRECTORY}/{STORAGE}"
    if step.sources:
        compiled = f"""\
    add_executable({name}_compare example/{COMPARE})
    target_link_libraries({name}_compare PRIVATE {name})
"""
        compare = f"\n        COMMAND {name}_compare {DIRECTORY} {TOLERANCE:g}"
    return f"""\
{compiled}    add_custom_target({name}_run
        COMMAND ${{CMAKE_COMMAND}} -E copy_directory
            ${{CMAKE_CURRENT_SOURCE_DIR}}/{DIRECTORY} {DIRECTORY}{copy}
        COMMAND {name}_example {DIRECTORY} 1{store}{compare}
        WORKING_DIRECTORY ${{CMAKE_CURRENT_BINARY_DIR}}
        VERBATIM
    )
"""

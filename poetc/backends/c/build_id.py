"""The number that all generated files of one run have, and none of another.

It is made of what is in the files, so the same input gives the same number. `NAME_build.h` defines
it and every C file of the model checks it, so that files of two runs do not compile together. The
Makefile tells its own to the compiler, and checks what no compiler reads, such as linker scripts
and assembly; so does CMakeLists.txt. What reads a description, in JSON, checks it
(`poetc.description`). Files of the runtime, which programs of several runs share, have a number of
their own, and `NAME_build.h` checks that (runtime_files.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.runtime_files import is_runtime, runtime_check
from poetc.backends.c.text import guarded
from poetc.costmodel.device import NO_CACHE_LINE_BYTES
from poetc.description import header_name

_C = (".c", ".h", ".ino")
_HASH_COMMENTS = (".txt", ".properties", ".yml", ".yaml", ".conf")
_HASH_COMMENT_NAMES = ("Makefile", "Kconfig")
_C_COMMENTS = (".s", ".ld")


def with_build_id(
    files: Mapping[str, str],
    name: str,
    index: str | None,
    copied: Collection[str] = (),
    line_bytes: int = NO_CACHE_LINE_BYTES,
) -> dict[str, str]:
    """The files of a program, with the header and the checks of the number; texts begin with a
    comment. The one called `index` is what builds them, if one does. `copied` are those that users
    copy and change: they are left as they are. `line_bytes` is the cache line of the runtime."""
    macro = f"{name.upper()}_BUILD"
    number = zlib.crc32(
        "\0".join(w for file in sorted(files) for w in (file, files[file])).encode()
    )
    number_text = f"0x{number:08x}u"
    header = header_name(name)
    made: dict[str, str] = {}
    for file, text in files.items():
        path = PurePosixPath(file)
        if path.name == header:
            check = runtime_check(name, line_bytes) if any(map(is_runtime, files.values())) else ""
            text = _header(macro, number_text, check)
        elif path.name in copied or is_runtime(text):
            pass
        elif path.suffix in _C:
            text = _checked(text, header, macro, number_text)
        elif (comment := _comment(file)) is not None:
            text += comment.format(f"{macro}_ID {number_text}")
        elif path.suffix == ".json":
            text = f'{text.rstrip().removesuffix("}").rstrip()},\n "build_id": {number}\n}}\n'
        made[file] = text
    if index is not None:
        checked = [
            file
            for file, text in made.items()
            if PurePosixPath(file).name not in copied and not is_runtime(text)
        ]
        made[index] += _check_of_builder(checked, name, macro, number_text, index)
    return made


def _header(macro: str, number: str, check: str) -> str:
    about = f"{MARK} The number of the run that all files are of."
    body = f"""\
{check}#define {macro}_ID {number}
#if defined({macro}_FILE_ID) && {macro}_FILE_ID != {macro}_ID
#error "what builds this is of another run of poetc than {macro.lower()}.h: run poetc again"
#endif
"""
    return guarded(f"{macro}_H", about, [], [body])


def _checked(text: str, header: str, macro: str, number: str) -> str:
    """A C file with the check behind its first comment."""
    end = text.index("*/") + len("*/\n")
    check = f"""\
#include "{header}"
#if {macro}_ID != {number}
#error "this file is of another run of poetc than {header}: run poetc again"
#endif
"""
    return text[:end] + check + text[end:]


def _check_of_builder(
    files: Collection[str], name: str, macro: str, number: str, index: str
) -> str:
    """The lines with which the file that builds the others tells the compiler its own number."""
    define = f"{macro}_FILE_ID={number}"
    others = [file for file in files if file != index and _comment(file) is not None]
    if index == "CMakeLists.txt":
        text = f"target_compile_definitions({name} PRIVATE {define})\n"
        if any(PurePosixPath(file).name == "Kconfig" for file in files):
            text = f"""\
if(CONFIG_POETC_{name.upper()})
    zephyr_library_compile_definitions({define})
endif()
"""
        if others:
            text += f"""\
foreach(file {" ".join(others)})
    if(EXISTS ${{CMAKE_CURRENT_LIST_DIR}}/${{file}})
        file(READ ${{CMAKE_CURRENT_LIST_DIR}}/${{file}} text)
        if(NOT text MATCHES "{number}")
            message(FATAL_ERROR "${{file}} is of another run of poetc: run it again")
        endif()
    endif()
endforeach()
"""
        return text
    if index != "Makefile":
        return ""
    text = f"REQUIRED += -D{define}\n"
    if others:
        text += (
            f"OF_ANOTHER_RUN := $(shell grep -L {number} {' '.join(others)})\n"
            "$(if $(OF_ANOTHER_RUN),"
            "$(error $(OF_ANOTHER_RUN): of another run of poetc: run it again))\n"
        )
    return text


def _comment(file: str) -> str | None:
    """The comment that has the number in a file that no compiler checks; None for other files."""
    path = PurePosixPath(file)
    if path.suffix in _C_COMMENTS:
        return "/* {} */\n"
    if path.suffix in _HASH_COMMENTS or path.name in _HASH_COMMENT_NAMES:
        return "\n# {}\n"
    if path.suffix == ".md":
        return "\n<!-- {} -->\n"
    return None

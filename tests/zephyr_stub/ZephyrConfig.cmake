# What a Zephyr application and a module use of Zephyr's CMake package, for tests, on the host.
# DOTCONFIG is the configuration, AUTOCONF the same as a header.
cmake_minimum_required(VERSION 3.20)
project(Zephyr-Kernel LANGUAGES C)

file(STRINGS ${DOTCONFIG} settings REGEX "^CONFIG_")
foreach(setting ${settings})
    string(REGEX MATCH "^([A-Z0-9_]+)=\"?([^\"]*)\"?$" matched "${setting}")
    set(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
endforeach()

add_library(zephyr_interface INTERFACE)
target_include_directories(zephyr_interface INTERFACE ${CMAKE_CURRENT_LIST_DIR}/include)
target_compile_options(zephyr_interface INTERFACE
    -std=c11 -Wall -Wextra -Wshadow -Werror -imacros ${AUTOCONF}
)

add_executable(app ${CMAKE_CURRENT_LIST_DIR}/host.c)
target_link_libraries(app PRIVATE zephyr_interface)

function(zephyr_include_directories)
    foreach(directory ${ARGV})
        get_filename_component(path ${directory} ABSOLUTE)
        target_include_directories(zephyr_interface INTERFACE ${path})
    endforeach()
endfunction()

macro(zephyr_library_named name)
    set(ZEPHYR_CURRENT_LIBRARY ${name})
    add_library(${name} STATIC)
    target_link_libraries(${name} PUBLIC zephyr_interface)
    set_property(GLOBAL APPEND PROPERTY ZEPHYR_LIBS ${name})
endmacro()

function(zephyr_library_include_directories)
    target_include_directories(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()

function(zephyr_library_sources)
    target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()

function(zephyr_library_sources_ifdef toggle)
    if(${${toggle}})
        zephyr_library_sources(${ARGN})
    endif()
endfunction()

function(zephyr_library_compile_options)
    target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()

function(zephyr_library_compile_definitions)
    target_compile_definitions(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()

set(count 0)
foreach(module ${ZEPHYR_EXTRA_MODULES})
    file(STRINGS ${module}/zephyr/module.yml line REGEX "^  cmake: ")
    string(REPLACE "  cmake: " "" place "${line}")
    math(EXPR count "${count} + 1")
    add_subdirectory(${module}/${place} ${CMAKE_BINARY_DIR}/modules/${count})
endforeach()

# All of each library, as Zephyr links.
get_property(libraries GLOBAL PROPERTY ZEPHYR_LIBS)
target_link_libraries(app PRIVATE -Wl,--whole-archive ${libraries} -Wl,--no-whole-archive)

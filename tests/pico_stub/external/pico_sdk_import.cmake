# What a program uses of the Pico SDK, for tests: a compiler for the core of PICO_BOARD, or with
# PICO_PLATFORM=host the one of this machine.
set(PICO_STUB ${CMAKE_CURRENT_LIST_DIR}/..)

if(PICO_PLATFORM STREQUAL "host")
    set(PICO_FLAGS -Wall)
else()
    if(PICO_BOARD STREQUAL "pico2")
        set(PICO_FLAGS -mcpu=cortex-m33 -mthumb -mfloat-abi=softfp -mfpu=fpv5-sp-d16)
    else()
        set(PICO_FLAGS -mcpu=cortex-m0plus -mthumb)
    endif()
    list(APPEND CMAKE_MODULE_PATH ${PICO_STUB})
    set(CMAKE_SYSTEM_NAME PICO)
    set(CMAKE_C_COMPILER arm-none-eabi-gcc)
    set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
    set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
endif()

macro(pico_sdk_init)
    add_compile_options(${PICO_FLAGS})
    add_library(pico_stdlib INTERFACE)
    target_include_directories(pico_stdlib INTERFACE ${PICO_STUB}/include)
    if(NOT PICO_PLATFORM STREQUAL "host")
        target_link_options(pico_stdlib INTERFACE ${PICO_FLAGS} --specs=nosys.specs)
    endif()
endmacro()

function(pico_enable_stdio_usb program on)
endfunction()

function(pico_add_extra_outputs program)
endfunction()

# Applies PULSE_PROGRAM_OPTIONS, and links the programs that have them accordingly.
include_guard()

# The linker takes the first copy of an inline function. If a program's objects are not optimised, pulse::compiled comes
# before them, so that plans, checkpoints and JSON are made by optimised code.
function(pulse_link_compiled_first target)
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
        target_link_options(${target} PRIVATE
            LINKER:--whole-archive $<TARGET_FILE:pulse_compiled> LINKER:--no-whole-archive)
    endif()
endfunction()

# pulse_use_program_options(<target>...): for programs that link pulse::compiled.
function(pulse_use_program_options)
    if(NOT PULSE_PROGRAM_OPTIONS)
        return()
    endif()
    foreach(target IN LISTS ARGN)
        if(TARGET ${target})
            target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PULSE_PROGRAM_OPTIONS}>)
            pulse_link_compiled_first(${target})
        endif()
    endforeach()
endfunction()

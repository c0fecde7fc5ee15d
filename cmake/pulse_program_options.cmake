# PULSE_PROGRAM_OPTIONS, and what a program needs that has them.
include_guard()

# Of an inline function that several objects have, a linker takes the first. Where the objects of a program are not
# optimised, pulse::compiled comes before them, so that a plan, a checkpoint and a JSON are made by code that is.
function(pulse_link_compiled_first target)
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
        target_link_options(${target} PRIVATE
            LINKER:--whole-archive $<TARGET_FILE:pulse_compiled> LINKER:--no-whole-archive)
    endif()
endfunction()

# pulse_use_program_options(<target>...): programs that link pulse::compiled.
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

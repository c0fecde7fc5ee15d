# Makes CUDA a language of pulse's own programs where nvcc is present: then CMAKE_CUDA_COMPILER is set.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "pulse: CUDA programs are left out: nvcc not found")
    return()
endif()
# H100, and what later GPUs compile for themselves; tests that are to run everywhere say so.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "90" CACHE STRING "Architectures of pulse's own CUDA programs")
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)

set(pulse_gpu_programs ${PULSE_GPU_PROGRAMS})
if(PULSE_GPU_PROGRAMS STREQUAL AUTO)
    set(pulse_gpu_programs OFF)
    if(EXISTS /dev/nvidiactl)
        set(pulse_gpu_programs ON)
    endif()
elseif(NOT PULSE_GPU_PROGRAMS MATCHES "^(ON|OFF)$")
    message(FATAL_ERROR "PULSE_GPU_PROGRAMS is '${PULSE_GPU_PROGRAMS}', and must be ON, OFF or AUTO")
endif()

# pulse_gpu_program(<target>): where no such programs are built, it is built by name only.
function(pulse_gpu_program target)
    if(NOT pulse_gpu_programs)
        set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
endfunction()

# pulse_unmeasured_kernels(<target>): where no such programs are built, its kernels need not be fast.
function(pulse_unmeasured_kernels target)
    if(NOT pulse_gpu_programs AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--Ofast-compile=max>)
    endif()
endfunction()

# pulse_add_gpu_test(<name> <command>...): the test of such a program. Where that is not built, it is skipped, or fails
# if PULSE_REQUIRE_GPU is 1.
function(pulse_add_gpu_test name)
    if(pulse_gpu_programs)
        add_test(NAME ${name} COMMAND ${ARGN})
    else()
        add_test(NAME ${name} COMMAND sh -c
            "echo skipped: no GPU was there when this was configured; test \"$PULSE_REQUIRE_GPU\" != 1 && exit 77")
    endif()
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu0)
endfunction()

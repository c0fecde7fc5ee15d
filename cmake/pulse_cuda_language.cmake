# Enables CUDA for pulse's own programs if nvcc is found: CMAKE_CUDA_COMPILER is then set.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "pulse: CUDA programs are left out: nvcc not found")
    return()
endif()
# Code for H100, and PTX that later GPUs compile themselves; tests that must run everywhere set their own.
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

# pulse_gpu_program(<target>): if GPU programs are off, the target is built only by name.
function(pulse_gpu_program target)
    if(NOT pulse_gpu_programs)
        set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
endfunction()

# pulse_unmeasured_kernels(<target>): if GPU programs are off, its kernels need not be fast.
function(pulse_unmeasured_kernels target)
    if(NOT pulse_gpu_programs AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:--Ofast-compile=max>)
    endif()
endfunction()

# pulse_add_gpu_test(<name> <command>...): the test of a GPU program. If that is not built, the test is skipped, or
# fails when PULSE_REQUIRE_GPU is 1.
function(pulse_add_gpu_test name)
    if(pulse_gpu_programs)
        add_test(NAME ${name} COMMAND ${ARGN})
    else()
        add_test(NAME ${name} COMMAND sh -c
            "echo skipped: no GPU was there when this was configured; test \"$PULSE_REQUIRE_GPU\" != 1 && exit 77")
    endif()
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu0)
endfunction()

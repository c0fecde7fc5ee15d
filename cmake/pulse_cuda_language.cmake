# Makes CUDA a language of pulse's own programs where nvcc is present: then CMAKE_CUDA_COMPILER is set.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "pulse: CUDA programs are left out: nvcc not found")
    return()
endif()
# One architecture, as each costs as much compiling again: code for H100 that later GPUs compile for themselves. The headers
# are checked for all that pulse is written for (tests/headers).
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "90" CACHE STRING "Architectures of pulse's own CUDA programs")
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)

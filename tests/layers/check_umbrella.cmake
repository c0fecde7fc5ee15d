# Fails when pulse/pulse.hpp or pulse/planner.hpp makes the compiler read a third party's header.
cmake_minimum_required(VERSION 3.25)
execute_process(
    COMMAND ${COMPILER} -std=c++20 -M -I${INCLUDE} -x c++ ${INCLUDE}/pulse/pulse.hpp ${INCLUDE}/pulse/planner.hpp
    RESULT_VARIABLE result OUTPUT_VARIABLE read ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "${errors}")
endif()
if(NOT read MATCHES "pulse/core/label\\.hpp")
    message(FATAL_ERROR "the compiler's list of what the doors read is not understood:\n${read}")
endif()
set(folders "nlohmann|CLI|stb|oneapi|cub")
set(headers "zlib|dnnl[a-z_]*|omp|cuda_runtime|mpi|nccl|glpk|cooperative_groups|utf8proc|sentencepiece_processor")
string(REGEX MATCHALL "[^ \n]*/(${folders})/[^ \n]*|[^ \n]*/(${headers})\\.hp?p?" foreign "${read}")
if(foreign)
    list(REMOVE_DUPLICATES foreign)
    list(JOIN foreign "\n  " foreign)
    message(FATAL_ERROR "the doors read\n  ${foreign}")
endif()

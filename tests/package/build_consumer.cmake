# Configures, builds and runs the consumer project from scratch. With parts absent it only configures: the consumer
# reports these as no targets and those in PARTS as targets. Other tests build each part alone, and the tree without the
# part.
cmake_minimum_required(VERSION 3.25)

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}\n${output}")
    endif()
endfunction()

file(REMOVE_RECURSE ${BUILD})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${ARGUMENTS})
if(ARGUMENTS MATCHES "-DABSENT=")
    return()
endif()
run(${CMAKE_COMMAND} --build ${BUILD})
run(${BUILD}/consumer)

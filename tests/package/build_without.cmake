# Configures pulse's own tree, with examples and benches, without the dependencies of the parts ABSENT: a line reports
# each as left out, and nothing fails. Only TARGETS are built; the others compile and link as in a whole tree.
cmake_minimum_required(VERSION 3.25)

function(run out)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}\n${output}")
    endif()
    set(${out} "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${BUILD})
run(said ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DPULSE_TEST_ROOMS=tensor
    -DCMAKE_CXX_FLAGS_DEBUG=-O0
    ${DISABLED})
foreach(part IN LISTS ABSENT)
    if(NOT said MATCHES "pulse::${part} is left out: [^\n]*(not found|no pulse::)")
        message(FATAL_ERROR "no line says that pulse::${part} is left out:\n${said}")
    endif()
endforeach()
if(TARGETS)
    run(said ${CMAKE_COMMAND} --build ${BUILD} --target ${TARGETS})
    return()
endif()
# If nothing is built, the headers are installed, and requesting a library reports that it is not installed.
run(said ${CMAKE_COMMAND} --install ${BUILD} --prefix ${BUILD}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${BUILD}/consumer -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${BUILD}/prefix -DPARTS=compiled
    OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT said MATCHES "component compiled is not installed")
    message(FATAL_ERROR "asked for pulse::compiled, which is not installed, pulse's package says:\n${said}")
endif()

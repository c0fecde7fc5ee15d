# Configures pulse's own tree, examples and benches included, without PACKAGE: the part PART is left out with a line that
# says so, and nothing fails. Of what is left TARGETS are built; the others compile and link the same as with PACKAGE.
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
    -DCMAKE_DISABLE_FIND_PACKAGE_${PACKAGE}=ON)
if(NOT said MATCHES "pulse::${PART} is left out: [^\n]*not found")
    message(FATAL_ERROR "no line says that pulse::${PART} is left out:\n${said}")
endif()
run(said ${CMAKE_COMMAND} --build ${BUILD} --target ${TARGETS})

# Compiles SOURCE with -DCASE=N. Case 0 must compile; any other must fail, and its first error must hold TEXT.
cmake_minimum_required(VERSION 3.25)

execute_process(
    COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -I${INCLUDE} -DCASE=${CASE} ${SOURCE}
    RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
message("${text}")

if(CASE EQUAL 0)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "the control does not compile")
    endif()
    return()
endif()

if(result EQUAL 0)
    message(FATAL_ERROR "case ${CASE} compiles; it should fail with: ${TEXT}")
endif()
string(FIND "${text}" " error: " at)
if(at LESS 0)
    message(FATAL_ERROR "case ${CASE} fails without an error line")
endif()
string(SUBSTRING "${text}" ${at} -1 text)
string(REGEX MATCH "^[^\n]*" first "${text}")
string(FIND "${first}" "${TEXT}" at)
if(at LESS 0)
    message(FATAL_ERROR "the first error of case ${CASE} is\n ${first}\nand not: ${TEXT}")
endif()

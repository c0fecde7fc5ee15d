# Runs after a test program is built: writes one ctest entry per doctest case to OUT.
cmake_minimum_required(VERSION 3.25)

# Lists the cases of PROGRAM under the given arguments. Brackets and semicolons in names would break a CMake list, so
# they are encoded as control characters.
function(list_cases out)
    execute_process(COMMAND ${PROGRAM} --list-test-cases --no-intro ${ARGN}
        OUTPUT_VARIABLE text RESULT_VARIABLE result WORKING_DIRECTORY ${WORKING_DIRECTORY})
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "${PROGRAM} --list-test-cases failed (${result}):\n${text}")
    endif()
    string(ASCII 1 open)
    string(ASCII 2 close)
    string(ASCII 3 semicolon)
    string(REPLACE "[doctest]" "" text "${text}")
    string(REPLACE "[" "${open}" text "${text}")
    string(REPLACE "]" "${close}" text "${text}")
    string(REPLACE ";" "${semicolon}" text "${text}")
    string(REPLACE "\n" ";" lines "${text}")
    set(cases)
    foreach(line IN LISTS lines)
        if(NOT line STREQUAL "" AND NOT line MATCHES "^(=+$| listing | unskipped )")
            list(APPEND cases "${line}")
        endif()
    endforeach()
    set(${out} "${cases}" PARENT_SCOPE)
endfunction()

function(restore out text)
    string(ASCII 1 open)
    string(ASCII 2 close)
    string(ASCII 3 semicolon)
    string(REPLACE "${open}" "[" text "${text}")
    string(REPLACE "${close}" "]" text "${text}")
    string(REPLACE "${semicolon}" ";" text "${text}")
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

list_cases(all --no-skip)
list_cases(active)
list_cases(of_constexpr --no-skip --test-suite=constexpr)
if(NOT all)
    message(FATAL_ERROR "${PROGRAM} has no test case")
endif()

string(REPLACE "," ";" labels "${LABELS}")
list(REMOVE_DUPLICATES labels)
set(script "")
foreach(case IN LISTS all)
    set(case_labels ${labels})
    if(case IN_LIST of_constexpr)
        list(APPEND case_labels constexpr)
    endif()
    set(disabled OFF)
    if(NOT case IN_LIST active)
        set(disabled ON)
    endif()
    restore(name "${case}")
    # doctest separates filters by commas
    string(REPLACE "," "\\," filter "${name}")
    string(APPEND script
        "add_test([==[${ROOM}.${name}]==] [==[${PROGRAM}]==] [==[--test-case=${filter}]==] --no-intro --no-version)\n"
        "set_tests_properties([==[${ROOM}.${name}]==] PROPERTIES LABELS [==[${case_labels}]==] TIMEOUT ${TIMEOUT} "
        "SKIP_RETURN_CODE 77 FAIL_REGULAR_EXPRESSION \"test cases: +0 \" "
        "WORKING_DIRECTORY [==[${WORKING_DIRECTORY}]==] RUN_SERIAL ${SERIAL} DISABLED ${disabled})\n")
endforeach()
file(WRITE ${OUT} "${script}")

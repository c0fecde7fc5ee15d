# pulse_add_test(<room> SOURCES <files> LIBRARIES <targets> [EVERYWHERE <files>] [COMPARED <files>] [BODIES <files>]
# [LABELS <labels>] [DEFINITIONS <name=value>] [TIMEOUT <s>] [SERIAL] [QUICK])
#
# Builds the doctest program test_<room> and registers each case with ctest as "<room>.<case>", labelled with LABELS and
# the room's name; cases of TEST_SUITE("constexpr") also get that label. A case that calls pulse::test::skip() is
# reported as skipped, one marked doctest::skip() as disabled; a name that runs no case fails. COMPARED files are left
# out under sanitizers: they are the slowest there, and other cases find the same faults. If the room is in
# PULSE_SANITIZED_ELSEWHERE, only they and EVERYWHERE files are built; the latter draw fewer cases or run other
# instructions under sanitizers. BODIES files need constant expressions or declarations that only bodies have, so they
# include the bodies even if the room links pulse::compiled. SERIAL cases run alone. QUICK cases take less time
# than optimising them would, so they are not optimised. If a library is no target, the room's tests are left out with a
# status line.
include_guard()

function(pulse_add_test room)
    cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;QUICK" "TIMEOUT"
                          "SOURCES;EVERYWHERE;COMPARED;BODIES;LIBRARIES;LABELS;DEFINITIONS")
    if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES OR NOT arg_LIBRARIES)
        message(FATAL_ERROR "pulse_add_test(${room}): SOURCES and LIBRARIES are needed, "
                            "'${arg_UNPARSED_ARGUMENTS}' is not known")
    endif()
    if(room IN_LIST PULSE_SANITIZED_ELSEWHERE)
        set(arg_SOURCES)
    endif()
    list(APPEND arg_SOURCES ${arg_EVERYWHERE} ${arg_BODIES})
    if(NOT PULSE_SANITIZED)
        list(APPEND arg_SOURCES ${arg_COMPARED})
    endif()
    set_source_files_properties(${arg_BODIES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
        COMPILE_OPTIONS "-UPULSE_SEPARATE_COMPILATION;-UPULSE_SEPARATE_HOST")
    if(NOT arg_SOURCES)
        return()
    endif()
    foreach(library IN LISTS arg_LIBRARIES)
        if(NOT TARGET ${library})
            message(STATUS "pulse: the tests of ${room} are left out: no target ${library}")
            return()
        endif()
    endforeach()
    if(NOT arg_LABELS)
        set(arg_LABELS host)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 600)
    endif()

    set(target test_${room})
    add_executable(${target} ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE pulse_test_main ${arg_LIBRARIES} doctest::doctest pulse::developer)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS} PULSE_TEST_SANITIZED=$<BOOL:${PULSE_SANITIZED}>)
    if(PULSE_UNITY_TESTS)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    endif()
    # Compilation is most of a test's cost.
    if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
        target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1> $<$<BOOL:${arg_QUICK}>:-O0>)
    endif()

    # The built program lists its cases in a file that ctest reads.
    set(cases ${CMAKE_CURRENT_BINARY_DIR}/${target}.cases.cmake)
    list(JOIN arg_LABELS "," labels)
    add_custom_command(TARGET ${target} POST_BUILD
        BYPRODUCTS ${cases}
        COMMAND ${CMAKE_COMMAND}
            -D PROGRAM=$<TARGET_FILE:${target}>
            -D ROOM=${room}
            -D LABELS=${labels},${room}
            -D TIMEOUT=${arg_TIMEOUT}
            -D SERIAL=${arg_SERIAL}
            -D WORKING_DIRECTORY=${CMAKE_CURRENT_BINARY_DIR}
            -D OUT=${cases}
            -P ${PROJECT_SOURCE_DIR}/cmake/register_cases.cmake
        VERBATIM)
    set(include_file ${CMAKE_CURRENT_BINARY_DIR}/${target}.ctest.cmake)
    file(WRITE ${include_file}
        "if(EXISTS \"${cases}\")\n  include(\"${cases}\")\nelse()\n  "
        "add_test(${room}.not_built ${target}.not_built)\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include_file})
endfunction()

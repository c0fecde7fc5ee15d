# pulse_add_compile_fail(<file>), registered as compile_fail.<file>
#
# The file has lines "// error-N: text". With CASE=0 it is the control and must compile; with CASE=N it must not, and
# its first error must contain the text. All cases are one compilation: the file's includes, then the file once per N in
# a namespace, where the compiler takes it for <file>.N. No two cases may instantiate the same wrong type, because its
# error appears only once.
include_guard()

function(pulse_add_compile_fail file)
    get_filename_component(source ${file} ABSOLUTE)
    get_filename_component(name ${file} NAME_WE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} lines REGEX "^// error-[0-9]+: ")
    if(NOT lines)
        message(FATAL_ERROR "${file}: no line '// error-N: text'")
    endif()
    file(READ ${source} text)
    file(STRINGS ${source} includes REGEX "^#include ")
    list(JOIN includes "\n" unit)
    list(LENGTH lines last)
    foreach(case RANGE ${last})
        string(APPEND unit "\n#undef CASE\n#define CASE ${case}\nnamespace case_${case} {\n"
            "#line 1 \"${name}.${case}\"\n${text}\n}  // namespace case_${case}\n")
    endforeach()
    set(cases ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    file(CONFIGURE OUTPUT ${cases} CONTENT "${unit}" @ONLY)
    add_test(NAME compile_fail.${name} COMMAND ${CMAKE_COMMAND}
        -D COMPILER=${CMAKE_CXX_COMPILER}
        -D COMPILER_ID=${CMAKE_CXX_COMPILER_ID}
        -D INCLUDE=${PROJECT_SOURCE_DIR}/include
        -D SOURCE=${source}
        -D CASES=${cases}
        -P ${PROJECT_SOURCE_DIR}/cmake/expect_compile_errors.cmake)
    set_tests_properties(compile_fail.${name} PROPERTIES LABELS compile_fail TIMEOUT 300)
endfunction()

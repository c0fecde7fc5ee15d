# pulse_add_compile_fail(<file>)
#
# The file has lines "// error-N: text". Case 0 (CASE=0) is the control and must compile; case N must not compile, and its first
# error must hold the text. Registered as compile_fail.<file>.control and compile_fail.<file>.N.
include_guard()

function(pulse_add_compile_fail file)
    get_filename_component(source ${file} ABSOLUTE)
    get_filename_component(name ${file} NAME_WE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} lines REGEX "^// error-[0-9]+: ")
    if(NOT lines)
        message(FATAL_ERROR "${file}: no line '// error-N: text'")
    endif()
    list(PREPEND lines "// error-0: ")
    foreach(line IN LISTS lines)
        string(REGEX MATCH "^// error-([0-9]+): (.*)$" matched "${line}")
        set(case ${CMAKE_MATCH_1})
        set(text "${CMAKE_MATCH_2}")
        set(test compile_fail.${name}.${case})
        if(case EQUAL 0)
            set(test compile_fail.${name}.control)
        endif()
        add_test(NAME ${test} COMMAND ${CMAKE_COMMAND}
            -D COMPILER=${CMAKE_CXX_COMPILER}
            -D INCLUDE=${PROJECT_SOURCE_DIR}/include
            -D SOURCE=${source}
            -D CASE=${case}
            -D TEXT=${text}
            -P ${PROJECT_SOURCE_DIR}/cmake/expect_compile_error.cmake)
        set_tests_properties(${test} PROPERTIES LABELS compile_fail TIMEOUT 120)
    endforeach()
endfunction()

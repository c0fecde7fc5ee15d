# Finds utf8proc (Debian: libutf8proc-dev). Defines Utf8proc::utf8proc and Utf8proc_VERSION.
find_path(Utf8proc_INCLUDE_DIR NAMES utf8proc.h)
find_library(Utf8proc_LIBRARY NAMES utf8proc)
mark_as_advanced(Utf8proc_INCLUDE_DIR Utf8proc_LIBRARY)

if(Utf8proc_INCLUDE_DIR AND EXISTS ${Utf8proc_INCLUDE_DIR}/utf8proc.h)
    set(Utf8proc_VERSION)
    foreach(field IN ITEMS MAJOR MINOR PATCH)
        file(STRINGS ${Utf8proc_INCLUDE_DIR}/utf8proc.h line REGEX "^#define UTF8PROC_VERSION_${field}[ \t]+[0-9]+")
        string(REGEX REPLACE ".*_${field}[ \t]+([0-9]+).*" "\\1" line "${line}")
        list(APPEND Utf8proc_VERSION ${line})
    endforeach()
    list(JOIN Utf8proc_VERSION "." Utf8proc_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Utf8proc
    REQUIRED_VARS Utf8proc_LIBRARY Utf8proc_INCLUDE_DIR
    VERSION_VAR Utf8proc_VERSION
    HANDLE_VERSION_RANGE)

if(Utf8proc_FOUND AND NOT TARGET Utf8proc::utf8proc)
    add_library(Utf8proc::utf8proc UNKNOWN IMPORTED)
    set_target_properties(Utf8proc::utf8proc PROPERTIES
        IMPORTED_LOCATION "${Utf8proc_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${Utf8proc_INCLUDE_DIR}")
endif()

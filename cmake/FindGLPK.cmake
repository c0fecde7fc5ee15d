# Finds GLPK (Debian: libglpk-dev), which has neither a config file nor a .pc file. Defines GLPK::GLPK and GLPK_VERSION.
find_path(GLPK_INCLUDE_DIR NAMES glpk.h)
find_library(GLPK_LIBRARY NAMES glpk)
mark_as_advanced(GLPK_INCLUDE_DIR GLPK_LIBRARY)

if(GLPK_INCLUDE_DIR AND EXISTS ${GLPK_INCLUDE_DIR}/glpk.h)
    set(GLPK_VERSION)
    foreach(field IN ITEMS MAJOR MINOR)
        file(STRINGS ${GLPK_INCLUDE_DIR}/glpk.h line REGEX "^#define GLP_${field}_VERSION[ \t]+[0-9]+")
        string(REGEX REPLACE "[^0-9]*([0-9]+).*" "\\1" line "${line}")
        list(APPEND GLPK_VERSION ${line})
    endforeach()
    list(JOIN GLPK_VERSION "." GLPK_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(GLPK
    REQUIRED_VARS GLPK_LIBRARY GLPK_INCLUDE_DIR
    VERSION_VAR GLPK_VERSION
    HANDLE_VERSION_RANGE)

if(GLPK_FOUND AND NOT TARGET GLPK::GLPK)
    add_library(GLPK::GLPK UNKNOWN IMPORTED)
    set_target_properties(GLPK::GLPK PROPERTIES
        IMPORTED_LOCATION "${GLPK_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${GLPK_INCLUDE_DIR}")
endif()

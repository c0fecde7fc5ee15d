# Finds oneDNN (Debian and Ubuntu: libdnnl-dev). Defines OneDNN::OneDNN, OneDNN_VERSION and OneDNN_RETURNS_WHEN_DONE. A
# oneDNN whose CPU engine runs on SYCL returns from a call before the work is done, and is rejected.
# Debian's config file is not used: it asks for OpenCL, which the CPU engine does not need.
find_path(OneDNN_INCLUDE_DIR NAMES oneapi/dnnl/dnnl.h)
find_library(OneDNN_LIBRARY NAMES dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

if(OneDNN_INCLUDE_DIR AND EXISTS ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
    set(OneDNN_VERSION)
    foreach(field IN ITEMS MAJOR MINOR PATCH)
        file(STRINGS ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h line
            REGEX "^#define DNNL_VERSION_${field}[ \t]+[0-9]+")
        string(REGEX REPLACE "[^0-9]*([0-9]+).*" "\\1" line "${line}")
        list(APPEND OneDNN_VERSION ${line})
    endforeach()
    list(JOIN OneDNN_VERSION "." OneDNN_VERSION)
    file(STRINGS ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h on_sycl
        REGEX "^#define DNNL_CPU_RUNTIME DNNL_RUNTIME_(SYCL|DPCPP)$")
    set(OneDNN_RETURNS_WHEN_DONE TRUE)
    if(on_sycl)
        set(OneDNN_RETURNS_WHEN_DONE FALSE)
    endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
    REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR OneDNN_RETURNS_WHEN_DONE
    VERSION_VAR OneDNN_VERSION
    HANDLE_VERSION_RANGE)

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
    add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
    set_target_properties(OneDNN::OneDNN PROPERTIES
        IMPORTED_LOCATION "${OneDNN_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()

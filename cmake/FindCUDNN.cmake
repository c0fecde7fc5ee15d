# Finds cuDNN. Defines CUDNN::cudnn and CUDNN_VERSION. Searches CUDNN_ROOT or CUDA's own folder first.
find_package(CUDAToolkit QUIET)
find_path(CUDNN_INCLUDE_DIR NAMES cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)

if(CUDNN_INCLUDE_DIR AND EXISTS ${CUDNN_INCLUDE_DIR}/cudnn_version.h)
    set(CUDNN_VERSION)
    foreach(field IN ITEMS MAJOR MINOR PATCHLEVEL)
        file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h line REGEX "^#define CUDNN_${field}[ \t]+[0-9]+")
        string(REGEX REPLACE "[^0-9]*([0-9]+).*" "\\1" line "${line}")
        list(APPEND CUDNN_VERSION ${line})
    endforeach()
    list(JOIN CUDNN_VERSION "." CUDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN
    REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR
    VERSION_VAR CUDNN_VERSION
    HANDLE_VERSION_RANGE)

if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
    add_library(CUDNN::cudnn UNKNOWN IMPORTED)
    set_target_properties(CUDNN::cudnn PROPERTIES
        IMPORTED_LOCATION "${CUDNN_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
endif()

# Installs the headers, the libraries of compiled bodies, one targets file per part, and the find modules beside the
# config file.
include(CMakePackageConfigHelpers)

set(pulse_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pulse)

foreach(part IN LISTS pulse_parts)
    get_target_property(target pulse::${part} ALIASED_TARGET)
    install(TARGETS ${target} EXPORT pulse-${part}-targets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(EXPORT pulse-${part}-targets NAMESPACE pulse:: DESTINATION ${pulse_cmake_dir})
endforeach()

foreach(library IN ITEMS compiled compiled_host compiled_pictures)
    if(TARGET pulse_${library})
        # optional: without the library the headers are enough
        install(TARGETS pulse_${library} EXPORT pulse-${library}-targets
                ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
        install(EXPORT pulse-${library}-targets NAMESPACE pulse:: DESTINATION ${pulse_cmake_dir})
    endif()
endforeach()

# OpenMP depends on the consumer's compiler: the config file adds it, not the installed target.
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/pulse-config.cmake.in
    ${PROJECT_BINARY_DIR}/pulse-config.cmake
    INSTALL_DESTINATION ${pulse_cmake_dir}
    NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pulse-config-version.cmake
    COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
    ${PROJECT_BINARY_DIR}/pulse-config.cmake
    ${PROJECT_BINARY_DIR}/pulse-config-version.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake
    ${PROJECT_SOURCE_DIR}/cmake/pulse_cuda_standard.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindCUDNN.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindGLPK.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindSentencePiece.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindUtf8proc.cmake
    ${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake
    DESTINATION ${pulse_cmake_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

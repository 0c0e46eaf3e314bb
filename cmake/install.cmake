# Install rules of the library and its headers, for find_package(kuiper). Programs install themselves.
include(CMakePackageConfigHelpers)

install(TARGETS kuiper kuiper_deps EXPORT kuiper ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/kuiper DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN kernels EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kuiper)
install(EXPORT kuiper NAMESPACE kuiper:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kuiper-config.cmake.in
  ${PROJECT_BINARY_DIR}/kuiper-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kuiper-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kuiper-config.cmake
  ${PROJECT_BINARY_DIR}/kuiper-config-version.cmake DESTINATION ${package_dir})

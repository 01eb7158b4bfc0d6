# cmake --install: libraries, headers, the CMake package with its optional component torch, and a .pc.
include(CMakePackageConfigHelpers)
set(muster_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/muster)

install(TARGETS muster_launch EXPORT muster-launch-targets FILE_SET HEADERS)
install(EXPORT muster-launch-targets NAMESPACE muster:: DESTINATION ${muster_package_dir})
if(MUSTER_WITH_TORCH)
  install(TARGETS muster EXPORT muster-torch-targets FILE_SET HEADERS)
  install(EXPORT muster-torch-targets NAMESPACE muster:: DESTINATION ${muster_package_dir})
  install(FILES cmake/MusterLibtorch.cmake DESTINATION ${muster_package_dir})
endif()

configure_package_config_file(cmake/muster-config.cmake.in muster-config.cmake
  INSTALL_DESTINATION ${muster_package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(muster-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/muster-config.cmake
  ${PROJECT_BINARY_DIR}/muster-config-version.cmake
  DESTINATION ${muster_package_dir})

# Relative to the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH muster_pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/muster-launch.pc.in muster-launch.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/muster-launch.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# `cmake --install`: headers, library, command, and what find_package(qkv) and pkg-config read.

include(CMakePackageConfigHelpers)

set(qkv_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/qkv")

install(TARGETS qkv EXPORT qkv-targets)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/qkv" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(QKV_BUILD_CLI)
  file(RELATIVE_PATH qkv_bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  set_target_properties(qkv_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${qkv_bin_to_lib}")
  install(TARGETS qkv_cli)
endif()

install(EXPORT qkv-targets NAMESPACE qkv:: DESTINATION "${qkv_package_dir}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/qkv-config.cmake.in" "${PROJECT_BINARY_DIR}/qkv-config.cmake"
  INSTALL_DESTINATION "${qkv_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/qkv-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/qkv-config.cmake" "${PROJECT_BINARY_DIR}/qkv-config-version.cmake"
  DESTINATION "${qkv_package_dir}")

# For pkg-config; what a static link needs besides comes with --static. The prefix is told from where the
# file lies, so that an installed tree may be moved.
file(RELATIVE_PATH qkv_pc_to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig"
     "${CMAKE_INSTALL_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/qkv.pc.in" "${PROJECT_BINARY_DIR}/qkv.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/qkv.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

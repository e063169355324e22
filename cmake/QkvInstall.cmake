# `cmake --install`: headers, library, command, and what find_package(qkv) and pkg-config read.

include(CMakePackageConfigHelpers)

set(qkv_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/qkv")

install(TARGETS qkv EXPORT qkv-targets)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/qkv" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(QKV_BUILD_CLI)
  install(TARGETS qkv_cli)
endif()

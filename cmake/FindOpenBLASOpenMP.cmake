# Finds the OpenBLAS that shares its threads with OpenMP, as Debian's libopenblas-openmp-dev installs it
# beside the other builds, and defines OpenBLAS::OpenMP. With a second thread pool in the process,
# a BLAS call from a program that itself computes on all cores would use twice the cores there are.

find_path(
  OpenBLASOpenMP_INCLUDE_DIR
  NAMES cblas.h
  PATH_SUFFIXES openblas-openmp "${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp")
find_library(
  OpenBLASOpenMP_LIBRARY
  NAMES openblas
  PATH_SUFFIXES openblas-openmp)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLASOpenMP REQUIRED_VARS OpenBLASOpenMP_LIBRARY
                                                               OpenBLASOpenMP_INCLUDE_DIR)
mark_as_advanced(OpenBLASOpenMP_LIBRARY OpenBLASOpenMP_INCLUDE_DIR)

if(OpenBLASOpenMP_FOUND AND NOT TARGET OpenBLAS::OpenMP)
  add_library(OpenBLAS::OpenMP UNKNOWN IMPORTED)
  set_target_properties(
    OpenBLAS::OpenMP PROPERTIES IMPORTED_LOCATION "${OpenBLASOpenMP_LIBRARY}"
                                INTERFACE_INCLUDE_DIRECTORIES "${OpenBLASOpenMP_INCLUDE_DIR}")
endif()

# qkv_add_tests(<layer> [SOURCES file...] [SLOW_SOURCES file...])
#
# Builds tests/<layer> into qkv_<layer>_tests and registers every test of it as <layer>.<suite>.<test>.
# Tests run in the root of the repository; QKV_SOURCE_DIR names it, QKV_COMMAND the built qkv. SLOW_SOURCES make a second
# program, qkv_<layer>_slow_tests, whose tests carry the label "slow": the sanitizer builds leave them out.
function(qkv_add_tests layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;SLOW_SOURCES")
  if(arg_SOURCES)
    qkv_add_test_program(qkv_${layer}_tests ${layer} fast ${arg_SOURCES})
  endif()
  if(arg_SLOW_SOURCES)
    qkv_add_test_program(qkv_${layer}_slow_tests ${layer} slow ${arg_SLOW_SOURCES})
  endif()
endfunction()

function(qkv_add_test_program target layer label)
  add_executable(${target} ${ARGN})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/src")
  target_compile_definitions(
    ${target} PRIVATE QKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                      QKV_COMMAND="${PROJECT_BINARY_DIR}/qkv")
  if(QKV_SANITIZE)
    target_compile_definitions(${target} PRIVATE QKV_SANITIZED)
  endif()
  if(QKV_SANITIZE MATCHES "thread")
    target_compile_definitions(${target} PRIVATE QKV_SANITIZED_THREADS)
  endif()
  target_link_libraries(
    ${target} PRIVATE qkv::qkv qkv_compiler_settings fmt::fmt nlohmann_json::nlohmann_json
                      OpenMP::OpenMP_CXX GTest::gmock GTest::gtest_main)
  qkv_precompile(${target} <gmock/gmock.h> <gtest/gtest.h>)
  # Tests run side by side: threads that spin where they wait would keep each other from the cores.
  gtest_discover_tests(
    ${target}
    TEST_PREFIX "${layer}." NO_PRETTY_VALUES
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS ${label} ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()

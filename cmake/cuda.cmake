# The CUDA backend. KUIPER_CUDA=AUTO builds it where it can run: a CUDA compiler and an NVIDIA device
# are there. ON builds it for other machines as well. Architectures: what the user says
# (CMAKE_CUDA_ARCHITECTURES, CUDAARCHS), else 87 on a Jetson (Tegra), else those of Ampere to Hopper
# and PTX for what comes after.
set(KUIPER_CUDA "AUTO" CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE KUIPER_CUDA PROPERTY STRINGS AUTO ON OFF)

# Where the toolkit's installer puts nvcc; a Jetson does not have that in PATH.
find_program(KUIPER_NVCC nvcc PATHS /usr/local/cuda/bin)

# Enables the language; kuiper_cuda_problem says what stands against it, "" nothing.
macro(kuiper_enable_cuda)
  set(kuiper_cuda_problem "")
  # check_language tries the compiler in a project of its own, which sees these variables alone.
  if(KUIPER_NVCC AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} "${KUIPER_NVCC}")
  endif()
  if(CMAKE_CUDA_HOST_COMPILER)
    set(ENV{CUDAHOSTCXX} "${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  if(DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(ENV{CUDAARCHS} "${CMAKE_CUDA_ARCHITECTURES}")
  elseif(NOT DEFINED ENV{CUDAARCHS})
    if(EXISTS /etc/nv_tegra_release)
      set(ENV{CUDAARCHS} 87-real)
    else()
      set(ENV{CUDAARCHS} "80-real;86-real;87-real;89-real;90")
    endif()
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)  # what failed before is tried again
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    string(CONCAT kuiper_cuda_problem "no CUDA compiler is found that works (logs in CMakeFiles say why): "
      "install the CUDA toolkit or set CMAKE_CUDA_COMPILER")
  else()
    enable_language(CUDA)
    find_package(CUDAToolkit)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
      set(kuiper_cuda_problem "CUDA ${CMAKE_CUDA_COMPILER_VERSION} does not know C++20: install CUDA 12 or newer")
    elseif(NOT CUDAToolkit_FOUND)
      set(kuiper_cuda_problem "the CUDA toolkit lacks its headers or its runtime: install the whole of it")
    elseif(NOT TARGET CUDA::cublasLt)
      set(kuiper_cuda_problem "the CUDA toolkit has no cuBLAS: install libcublas-dev of the same version")
    endif()
  endif()
endmacro()

set(KUIPER_WITH_CUDA OFF)
# What drivers show: a GPU, a Tegra's, that of Windows (WSL).
file(GLOB nvidia_devices /dev/nvidia[0-9]* /dev/nvhost-gpu /etc/nv_tegra_release
  /usr/lib/wsl/lib/libcuda.so.1)
if(KUIPER_CUDA STREQUAL "AUTO" AND (CMAKE_CROSSCOMPILING OR NOT nvidia_devices))
  message(STATUS "CUDA backend: off, no NVIDIA device is here (-DKUIPER_CUDA=ON builds it all the same)")
elseif(KUIPER_CUDA)
  kuiper_enable_cuda()
  if(kuiper_cuda_problem STREQUAL "")
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    # nvcc 12 knows C++20, CMake up to 3.25 does not know that it does.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    endif()
    set(KUIPER_WITH_CUDA ON)
    message(STATUS
      "CUDA backend: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for sm ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(KUIPER_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA backend: off, ${kuiper_cuda_problem}")
  else()
    message(FATAL_ERROR "KUIPER_CUDA=${KUIPER_CUDA}, but ${kuiper_cuda_problem}")
  endif()
endif()

# kuiper_cuda_sources(target file.cu...): adds the files to a target, compiled by nvcc.
function(kuiper_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  target_link_libraries(${target} PRIVATE
    $<BUILD_INTERFACE:CUDA::cudart_static> $<BUILD_INTERFACE:CUDA::cublasLt>)
endfunction()

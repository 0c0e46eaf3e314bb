# The CUDA backend. KUIPER_CUDA=AUTO builds it where it can run: a CUDA compiler and an NVIDIA device
# are there. ON builds it for other machines as well. Architectures: what the user says
# (CMAKE_CUDA_ARCHITECTURES, CUDAARCHS), else 87 on a Jetson (Tegra), else those of Ampere to Hopper
# and PTX for what comes after.
set(KUIPER_CUDA "AUTO" CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE KUIPER_CUDA PROPERTY STRINGS AUTO ON OFF)

# Where the toolkit's installer puts nvcc; a Jetson does not have that in PATH.
find_program(KUIPER_NVCC nvcc HINTS /usr/local/cuda/bin)

# Enables the language; kuiper_cuda_problem says what stands against it, "" nothing.
macro(kuiper_enable_cuda)
  set(kuiper_cuda_problem "")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND KUIPER_NVCC)
    set(CMAKE_CUDA_COMPILER ${KUIPER_NVCC})
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(kuiper_cuda_problem "no CUDA compiler was found: install the CUDA toolkit or set CMAKE_CUDA_COMPILER")
  else()
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
      if(EXISTS /etc/nv_tegra_release)
        set(CMAKE_CUDA_ARCHITECTURES 87-real)
      else()
        set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 87-real 89-real 90)
      endif()
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
      set(kuiper_cuda_problem "CUDA ${CMAKE_CUDA_COMPILER_VERSION} does not know C++20: install CUDA 12 or newer")
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

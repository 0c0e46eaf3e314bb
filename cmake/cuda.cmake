# The CUDA backend, off unless asked for: it has run on the emulated device only, not yet on a GPU.
# KUIPER_CUDA=AUTO builds it when a CUDA compiler is found. Architectures: what the user says
# (CMAKE_CUDA_ARCHITECTURES, CUDAARCHS), else 87 on a Jetson (Tegra), else those of Ampere to Hopper
# and PTX for what comes after.
set(KUIPER_CUDA "OFF" CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE KUIPER_CUDA PROPERTY STRINGS AUTO ON OFF)

set(KUIPER_WITH_CUDA OFF)
if(KUIPER_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
      if(EXISTS /etc/nv_tegra_release)
        set(CMAKE_CUDA_ARCHITECTURES 87-real)
      else()
        set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 87-real 89-real 90)
      endif()
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    # nvcc 12 knows C++20, CMake up to 3.25 does not know that it does.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    endif()
    set(KUIPER_WITH_CUDA ON)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for sm ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(NOT KUIPER_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "KUIPER_CUDA=${KUIPER_CUDA}, but no CUDA compiler was found: install the "
      "CUDA toolkit or set CMAKE_CUDA_COMPILER")
  endif()
endif()

# kuiper_cuda_sources(target file.cu...): adds the files to a target, compiled by nvcc.
function(kuiper_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  target_link_libraries(${target} PRIVATE
    $<BUILD_INTERFACE:CUDA::cudart_static> $<BUILD_INTERFACE:CUDA::cublasLt>)
endfunction()

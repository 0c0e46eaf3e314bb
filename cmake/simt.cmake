# The emulated CUDA device (docs/simt.md): the .cu files of kernels/cuda, compiled by the C++
# compiler. It needs neither nvcc nor a GPU.

# kuiper_simt_sources(target file.cu...): adds the files to a target, compiled for the emulated
# device. A generated .cpp includes each, so that the same directory may also compile it by nvcc.
function(kuiper_simt_sources target)
  foreach(file ${ARGN})
    get_filename_component(path ${file} ABSOLUTE)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${path})
    set(wrapper ${PROJECT_BINARY_DIR}/simt/${name}.cpp)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${name}\"\n" @ONLY)
    target_sources(${target} PRIVATE ${wrapper})
    # -O1 at least: at -O0 the emulated device is ten times slower. `#pragma unroll` is nvcc's.
    set_source_files_properties(${wrapper} TARGET_DIRECTORY ${target} PROPERTIES
      COMPILE_DEFINITIONS KUIPER_SIMT
      COMPILE_OPTIONS "$<$<CONFIG:Debug>:-O1>;-Wno-unknown-pragmas")
  endforeach()
endfunction()

set(KUIPER_SIMT_RUNTIME fiber machine memory options runtime runtime_device runtime_memory shared_memory)
list(TRANSFORM KUIPER_SIMT_RUNTIME REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/kuiper/kernels/simt/\\1.cpp")

# kuiper_simt_runtime(target): adds the device itself. Its sources tell ThreadSanitizer about CUDA
# threads and are not checked themselves.
function(kuiper_simt_runtime target)
  target_sources(${target} PRIVATE ${KUIPER_SIMT_RUNTIME})
  set(options "$<$<CONFIG:Debug>:-O1>")
  if(KUIPER_SANITIZE MATCHES thread)
    list(APPEND options -fno-sanitize=thread -DKUIPER_SIMT_TSAN)
  endif()
  set_source_files_properties(${KUIPER_SIMT_RUNTIME} TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS "${options}")
endfunction()

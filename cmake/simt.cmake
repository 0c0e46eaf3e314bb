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

set(KUIPER_SIMT_RUNTIME fiber machine memory options runtime runtime_device runtime_memory shared_memory
  ptx_arithmetic ptx_compare ptx_convert ptx_device ptx_memory ptx_module ptx_parse ptx_registers ptx_run ptx_traffic
  ptx_warp)
list(TRANSFORM KUIPER_SIMT_RUNTIME REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/emulator/\\1.cpp")

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

# kuiper_ptx(folder file.cu...): appends to KUIPER_PTX_FILES the PTX of the files, in that folder, as the
# CUDA build's flags make it for Orin. What nvcc writes for other architectures of Ampere and Hopper
# differs in the line .target alone.
function(kuiper_ptx folder)
  foreach(file ${ARGN})
    get_filename_component(path ${file} ABSOLUTE)
    get_filename_component(name ${file} NAME_WE)
    set(ptx ${folder}/${name}.ptx)
    add_custom_command(OUTPUT ${ptx} DEPENDS ${path} DEPFILE ${ptx}.d VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND ${KUIPER_NVCC} ${KUIPER_PTX_FLAGS} -I ${PROJECT_SOURCE_DIR} -MD -MF ${ptx}.d -MT ${ptx} ${path} -o ${ptx}
      COMMENT "PTX of ${name}.cu")
    list(APPEND KUIPER_PTX_FILES ${ptx})
  endforeach()
  set(KUIPER_PTX_FILES ${KUIPER_PTX_FILES} PARENT_SCOPE)
endfunction()
set(KUIPER_PTX_FLAGS -std=c++20 -O3 -DNDEBUG ${KUIPER_CUDA_FLAGS} -arch=sm_87 -ptx)

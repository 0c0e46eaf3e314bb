# Tests that execute nvcc's PTX of the kernels on the emulated device: the op suite, whole models, every
# kernel of the CUDA build at least once, and mutations of the PTX wrappers. Needs nvcc.
if(NOT KUIPER_NVCC)
  message(STATUS "nvcc is not here: the tests that run its PTX are left out")
  return()
endif()
if(KUIPER_SANITIZE)
  message(STATUS "A build with sanitizers: the tests that run nvcc's PTX are left out")
  return()
endif()
# An nvcc that is too old for C++20 or for the C++ compiler must not break a build for the CPU.
if(NOT KUIPER_NVCC_MAKES_PTX STREQUAL KUIPER_NVCC)
  set(probe ${PROJECT_BINARY_DIR}/ptx/probe)
  file(WRITE ${probe}.cu "#include <cuda_bf16.h>\n#include <type_traits>\n__global__ void Probe() {}\n")
  execute_process(COMMAND ${KUIPER_NVCC} ${KUIPER_PTX_FLAGS} ${probe}.cu -o ${probe}.ptx
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(WARNING "${KUIPER_NVCC} makes no PTX of C++20: the tests that run it are left out\n${output}")
    return()
  endif()
  set(KUIPER_NVCC_MAKES_PTX ${KUIPER_NVCC} CACHE INTERNAL "The nvcc that was tried")
endif()

set(kernels_ptx ${PROJECT_BINARY_DIR}/ptx/kernels)
set(wrappers_ptx ${PROJECT_BINARY_DIR}/ptx/wrappers)
get_target_property(sources kuiper KUIPER_CUDA_SOURCES)
kuiper_ptx(${kernels_ptx} ${sources})
kuiper_ptx(${wrappers_ptx} wrappers.cu)
add_custom_target(kuiper_ptx ALL DEPENDS ${KUIPER_PTX_FILES})

# ptx_test(NAME [VARIABLES variable=value...] COMMAND program...): adds a ctest whose launches run from the
# kernels' PTX and that writes a report for ptx.coverage. It is slow, so it starts first.
set(reports ${PROJECT_BINARY_DIR}/ptx/reports)
file(MAKE_DIRECTORY ${reports})
set(report_files)
function(ptx_test name)
  cmake_parse_arguments(arg "" "" "VARIABLES;COMMAND" ${ARGN})
  set(report ${reports}/${name}.tsv)
  add_test(NAME ptx.${name} COMMAND ${arg_COMMAND})
  set_tests_properties(ptx.${name} PROPERTIES TIMEOUT 1200 COST 50 LABELS ptx FIXTURES_SETUP ptx_reports
    ENVIRONMENT "KUIPER_SIMT_PTX=${kernels_ptx};KUIPER_SIMT_PTX_REPORT=${report};${arg_VARIABLES}")
  set(report_files ${report_files} ${report} PARENT_SCOPE)
endfunction()

# Death tests are excluded: they do not test kernels.
ptx_test(ops COMMAND ops_test --gtest_filter=*simt*-*DeathTest*)
ptx_test(device COMMAND device_test --gtest_filter=*DeviceGoldenTest*simt*)
ptx_test(guarantees COMMAND device_test --gtest_filter=*DeviceGuaranteesTest*simt*)
ptx_test(vision COMMAND vision_test --gtest_filter=VisionTest.*simt*-*FramesAreIndependent*)
ptx_test(pictures COMMAND pictures_test --gtest_filter=*PicturesTest.*/simt)
ptx_test(graph COMMAND engine_test --gtest_filter=*GraphTest*/simt)
ptx_test(rates COMMAND kuiper_bench --invent ${PROJECT_SOURCE_DIR}/tools/bench_models/tiny.json --device simt
  --context 1 --batch 1 --prompt-tokens 8 --decode-steps 4 --repetitions 1)
add_test(NAME ptx.coverage
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/ptx_coverage.py ${report_files})
set_tests_properties(ptx.coverage PROPERTIES LABELS ptx FIXTURES_REQUIRED ptx_reports)

# At the shapes of real models, the kernels must not move or execute more than before.
add_executable(kernel_shapes kernel_shapes.cpp)
kuiper_test_options(kernel_shapes)
add_test(NAME ptx.traffic COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/kernel_traffic.py
  --program $<TARGET_FILE:kernel_shapes> --ptx ${kernels_ptx} --check ${PROJECT_SOURCE_DIR}/docs/kernel_traffic.tsv)
set_tests_properties(ptx.traffic PROPERTIES TIMEOUT 300 LABELS ptx SKIP_RETURN_CODE 77)

# A part of the suite: with the number of multiprocessors of an Orin and of an H200, in another order, and
# with every launch compared with the C++ compiler's version of the kernel.
ptx_test(ops_16_sms VARIABLES KUIPER_SIMT_SMS=16 COMMAND ops_test --gtest_filter=${KUIPER_OPS_SUBSET})
ptx_test(ops_132_sms VARIABLES KUIPER_SIMT_SMS=132 COMMAND ops_test --gtest_filter=${KUIPER_OPS_SUBSET})
ptx_test(ops_shuffled VARIABLES KUIPER_SIMT_SCHEDULE=shuffled:3 COMMAND ops_test
  --gtest_filter=${KUIPER_OPS_SUBSET})
ptx_test(compare VARIABLES KUIPER_SIMT_PTX_COMPARE=1 COMMAND ops_test --gtest_filter=${KUIPER_OPS_SUBSET})

# Whole programs must print the same text as on the emulated device without PTX; mutations must be detected.
add_test(NAME ptx.model COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/ptx_model.py
  $<TARGET_FILE_DIR:kuiper_program>/qwen3_infer ${PROJECT_SOURCE_DIR}/demo/models/tiny-qwen3 ${kernels_ptx})
add_test(NAME ptx.mutations COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/ptx_mutations.py
  ${PROJECT_SOURCE_DIR} $<TARGET_FILE:simt_test> ${KUIPER_NVCC} ${KUIPER_PTX_FLAGS})
add_test(NAME ptx.wrappers COMMAND simt_test --gtest_filter=*WrappersTest*/simt)
set_tests_properties(ptx.wrappers PROPERTIES ENVIRONMENT KUIPER_SIMT_PTX=${wrappers_ptx})
set_tests_properties(ptx.model ptx.mutations ptx.wrappers PROPERTIES TIMEOUT 1200 COST 50 LABELS ptx)

# Tests of prefill products with cuBLASLt, without a GPU: NVIDIA's library provides the descriptors, a stub on
# the emulated device the products (cublaslt_stub.h). Also linear layers of the op suite and whole models.
if(NOT CMAKE_CROSSCOMPILING)
  find_package(CUDAToolkit QUIET)
endif()
if(NOT TARGET CUDA::cublasLt)
  message(STATUS "cuBLASLt of the CUDA toolkit is not here: the tests of its side of the CUDA backend are left out")
  return()
endif()
add_executable(cublaslt_test cublaslt_test.cpp cublaslt_stub.cpp cublaslt_on_simt.cpp
  ${PROJECT_SOURCE_DIR}/kuiper/kernels/cuda/cublaslt_gemm.cpp ${PROJECT_SOURCE_DIR}/test/ops/dense_apply_test.cpp
  ${PROJECT_SOURCE_DIR}/test/engine/device_test.cpp ${PROJECT_SOURCE_DIR}/test/model/forward_runner.cpp)
kuiper_test_options(cublaslt_test)
target_link_libraries(cublaslt_test PRIVATE CUDA::cublasLt)
foreach(part "cublaslt=CublasLt*" "cublaslt.ops=DenseApplyTest.*simt*"
    "cublaslt.models=*LogitsMatch*/simt_qwen*f16:*DeviceGuaranteesTest*/simt_qwen3_gqa2_d128_bf16")
  string(REGEX MATCH "([^=]*)=(.*)" matched ${part})
  add_test(NAME ${CMAKE_MATCH_1} COMMAND cublaslt_test --gtest_filter=${CMAKE_MATCH_2})
  set_tests_properties(${CMAKE_MATCH_1} PROPERTIES TIMEOUT 300 LABELS cublaslt_test
    ENVIRONMENT KUIPER_CACHE_DIR=${CMAKE_CURRENT_BINARY_DIR}/no_choices)
endforeach()

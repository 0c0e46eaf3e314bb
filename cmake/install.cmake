# Install rules of the library and its headers, for find_package(kuiper). Programs install themselves.
include(CMakePackageConfigHelpers)

install(TARGETS kuiper kuiper_deps EXPORT kuiper ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# The public API is these headers and nothing else; test/install includes each of them alone.
set(KUIPER_PUBLIC_HEADERS
  base/buffer.h base/check.h base/device.h base/dtype.h base/fatal.h base/float8.h base/half.h base/host_device.h base/json.h base/log.h base/status.h base/tensor.h
  io/chat_message.h io/image/image_processor.h io/image/picture.h io/image/resize.h io/image/vision_config.h
  io/image/vision_input.h io/messages_json.h io/template_files.h io/thinking.h io/token_stream.h io/tokenizer.h
  model/config.h model/opened_model.h model/quantized/quantization_config.h model/rope_config.h model/vision_config.h
  ops/compute_device.h ops/kv_format.h ops/ops_options.h ops/paged_attention.h ops/sampling_params.h ops/token_ref.h
  ops/weight_format.h
  engine/engine.h engine/memory_plan.h engine/override_span.h engine/picture_config.h engine/picture_prompt.h engine/policy.h
  engine/request.h engine/run_comparison.h engine/run_facts.h engine/step_plan.h kv/kv_event.h kv/page_map.h kv/prefix_event.h
  chat/batch_line.h chat/chat_request.h chat/chat_response.h chat/conversation.h chat/conversation_json.h
  chat/parameters.h chat/picture_reader.h chat/prompt_template.h chat/template_facts.h chat/variable.h)
foreach(header ${KUIPER_PUBLIC_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/kuiper/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kuiper/${folder})
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kuiper)
install(EXPORT kuiper NAMESPACE kuiper:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kuiper-config.cmake.in
  ${PROJECT_BINARY_DIR}/kuiper-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kuiper-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kuiper-config.cmake
  ${PROJECT_BINARY_DIR}/kuiper-config-version.cmake ${PROJECT_SOURCE_DIR}/cmake/sentencepiece.cmake DESTINATION ${package_dir})

# What the engine is built with. Everything comes from the system but Highway where its version does not
# serve; a missing library is named with the Debian or Ubuntu package that brings it.
macro(kuiper_find name package)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} was not found: apt-get install ${package}")
  endif()
endmacro()

# Libraries that come with a pkg-config file only (or whose CMake file older distributions lack).
macro(kuiper_pkg prefix module package)
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
  if(NOT ${prefix}_FOUND)
    message(FATAL_ERROR "${module} was not found: apt-get install ${package}")
  endif()
endmacro()

kuiper_find(PkgConfig pkg-config)
kuiper_find(Threads libc6-dev)
kuiper_find(nlohmann_json nlohmann-json3-dev)
kuiper_find(Boost libboost-dev CONFIG)  # Asio and Beast, headers only: of the server alone
kuiper_pkg(GLOG libglog libgoogle-glog-dev)  # of kuiper_command_line and the programs alone
include(cmake/sentencepiece.cmake)
if(NOT SENTENCEPIECE_FOUND)
  message(FATAL_ERROR "sentencepiece was not found: apt-get install libsentencepiece-dev")
endif()
kuiper_pkg(PCRE2 libpcre2-8 libpcre2-dev)
kuiper_pkg(UTF8PROC libutf8proc libutf8proc-dev)  # widths on a terminal, cases in templates
include(cmake/highway.cmake)
# Optional: KV events of the server. ZMQ_FOUND stays in the cache when KUIPER_ZMQ is turned off.
set(KUIPER_HAS_ZMQ OFF)
if(KUIPER_ZMQ)
  pkg_check_modules(ZMQ QUIET IMPORTED_TARGET libzmq)
  set(KUIPER_HAS_ZMQ ${ZMQ_FOUND})
  if(NOT ZMQ_FOUND)
    message(STATUS "libzmq was not found: the server publishes no KV events (apt-get install libzmq3-dev)")
  endif()
endif()
# Pictures: JPEG as libjpeg-turbo has it.
kuiper_pkg(JPEG libjpeg libjpeg-dev)
kuiper_pkg(PNG libpng libpng-dev)
kuiper_find(GIF libgif-dev)
kuiper_pkg(WEBP libwebp libwebp-dev)
kuiper_pkg(WEBPDEMUX libwebpdemux libwebp-dev)

add_library(kuiper_deps INTERFACE)
target_link_libraries(kuiper_deps INTERFACE sentencepiece::sentencepiece PkgConfig::PCRE2
  PkgConfig::UTF8PROC ${KUIPER_HIGHWAY_TARGET} PkgConfig::JPEG PkgConfig::PNG GIF::GIF
  PkgConfig::WEBPDEMUX PkgConfig::WEBP $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> Threads::Threads)

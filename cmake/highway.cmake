# Highway, the library of SIMD operations that the CPU kernels are written with. The system's is taken if
# its version is one that the kernels were compiled and tested with. What tools/get_highway.sh put into
# build/ goes before it, for every build folder of this clone, and becomes a part of the installed library.
file(STRINGS ${PROJECT_SOURCE_DIR}/tools/packages.sh lines REGEX "^KUIPER_HIGHWAY_[A-Z]+=")
foreach(line ${lines})
  string(REGEX MATCH "^([A-Z_]+)=(.*)$" line ${line})
  set(${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/packages.sh)

set(highway ${PROJECT_SOURCE_DIR}/build/highway-${KUIPER_HIGHWAY_VERSION})
if(EXISTS ${highway}/hwy/highway.h)
  message(STATUS "Highway ${KUIPER_HIGHWAY_VERSION}: ${highway}")
  # All that is called; targets.cc calls per_target.cc on ARM.
  add_library(kuiper_highway STATIC
    ${highway}/hwy/abort.cc ${highway}/hwy/per_target.cc ${highway}/hwy/targets.cc)
  target_include_directories(kuiper_highway SYSTEM PUBLIC $<BUILD_INTERFACE:${highway}>)
  target_compile_features(kuiper_highway PRIVATE cxx_std_17)
  install(TARGETS kuiper_highway EXPORT kuiper ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${highway}/LICENSE-BSD3 DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME highway-LICENSE)
  set(KUIPER_HIGHWAY_TARGET kuiper_highway)
  set(KUIPER_HIGHWAY_PAIR "")
else()
  pkg_check_modules(HWY QUIET IMPORTED_TARGET libhwy)
  if(NOT HWY_FOUND)
    message(FATAL_ERROR "libhwy was not found: apt-get install libhwy-dev, or run tools/get_highway.sh")
  elseif(HWY_VERSION VERSION_LESS KUIPER_HIGHWAY_OLDEST)
    unset(HWY_FOUND CACHE)  # the next configuration looks again
    message(FATAL_ERROR "The system's Highway is ${HWY_VERSION}, and Kuiper needs ${KUIPER_HIGHWAY_OLDEST} or "
      "newer: run tools/get_highway.sh, which brings ${KUIPER_HIGHWAY_VERSION} into build/")
  elseif(HWY_VERSION VERSION_GREATER KUIPER_HIGHWAY_NEWEST)
    message(WARNING "Kuiper was tested with Highway ${KUIPER_HIGHWAY_OLDEST} to ${KUIPER_HIGHWAY_NEWEST}, and the "
      "system's is ${HWY_VERSION}. If it does not compile, run tools/get_highway.sh, which brings "
      "${KUIPER_HIGHWAY_VERSION} into build/")
  endif()
  message(STATUS "Highway ${HWY_VERSION}: the system's")
  set(KUIPER_HIGHWAY_TARGET PkgConfig::HWY)
  set(KUIPER_HIGHWAY_PAIR HWY=libhwy)
endif()

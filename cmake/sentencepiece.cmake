# The target sentencepiece::sentencepiece, for this project and, installed, for those that use its library. Not by
# pkg-config: the file of 0.2.0 (Debian 13, Ubuntu 24.04) requires protobuf's, which is in no package that comes along.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
mark_as_advanced(SENTENCEPIECE_INCLUDE_DIR SENTENCEPIECE_LIBRARY)
set(SENTENCEPIECE_FOUND FALSE)
if(SENTENCEPIECE_INCLUDE_DIR AND SENTENCEPIECE_LIBRARY)
  set(SENTENCEPIECE_FOUND TRUE)
  if(NOT TARGET sentencepiece::sentencepiece)
    add_library(sentencepiece::sentencepiece UNKNOWN IMPORTED)
    set_target_properties(sentencepiece::sentencepiece PROPERTIES
      IMPORTED_LOCATION ${SENTENCEPIECE_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${SENTENCEPIECE_INCLUDE_DIR})
  endif()
endif()

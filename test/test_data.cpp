#include "test_data.h"

#include <cstdlib>

namespace kuiper::test {

std::string SharedDir() {
  const char* dir = std::getenv("KUIPER_TEST_DATA");
  return dir != nullptr ? dir : KUIPER_TEST_DATA_DEFAULT;
}

std::string Shared(const std::string& path) {
  return SharedDir() + "/" + path;
}

std::string Source(const std::string& path) {
  return std::string(KUIPER_SOURCE_DIR) + "/" + path;
}

bool DataIsRequired() {
  const char* required = std::getenv("KUIPER_REQUIRE_TEST_DATA");
  return required != nullptr && std::string(required) == "1";
}

}  // namespace kuiper::test

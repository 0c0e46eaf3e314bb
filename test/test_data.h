// Where tests find data. Shared() is the large data set in a folder next to the project. A test
// that needs a file or folder of it begins with KU_REQUIRE_SHARED(path).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace kuiper::test {

std::string SharedDir();
std::string Shared(const std::string& path);
// A file of the project's own tree, e.g. Source("demo/models/tiny-qwen3").
std::string Source(const std::string& path);
bool DataIsRequired();

}  // namespace kuiper::test

#define KU_REQUIRE_SHARED(path)                                                                   \
  do {                                                                                            \
    if (!std::filesystem::exists(::kuiper::test::Shared(path))) {                                 \
      if (::kuiper::test::DataIsRequired()) FAIL() << "missing " << ::kuiper::test::Shared(path); \
      GTEST_SKIP() << "no " << ::kuiper::test::Shared(path)                                       \
                   << " (set KUIPER_TEST_DATA to the shared test data)";                          \
    }                                                                                             \
  } while (false)

// Small helpers of the io tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "kuiper/io/tokenizer.h"

namespace kuiper::test {

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns nullptr, and fails the test, if the tokenizer cannot be loaded.
inline std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path) {
  auto tokenizer = Tokenizer::Load(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

}  // namespace kuiper::test

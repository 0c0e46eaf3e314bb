#include "kuiper/model/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using test::SafetensorsBytes;
using test::TempDir;
using test::WriteFile;

Status Parse(const std::string& bytes) {
  return ParseSafetensorsHeader(bytes, static_cast<int64_t>(bytes.size()), "x.safetensors")
      .status();
}
std::string Message(const std::string& header, const std::string& data) {
  const Status status = Parse(SafetensorsBytes(header, data));
  return status.ok() ? "ok" : status.message();
}

constexpr const char* kTwo = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

TEST(Safetensors, ReadsAGoodHeader) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"data_offsets":[24,32],"shape":[4],"dtype":"BF16"},)"
      R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("none":{"dtype":"F8_E4M3","shape":[0,7],"data_offsets":[24,24]},)"
      R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[32,33]}}     )";
  const std::string bytes = SafetensorsBytes(header, std::string(33, '\1'));
  const auto parsed =
      ParseSafetensorsHeader(bytes, static_cast<int64_t>(bytes.size()), "x.safetensors");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
  EXPECT_EQ(parsed->tensors.size(), 4u);
  EXPECT_EQ(parsed->data_begin, static_cast<int64_t>(8 + header.size()));
  const SafetensorsEntry& b = parsed->tensors.at("b");
  EXPECT_EQ(b.type->dtype, DType::kBF16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(b.begin, 24);
  EXPECT_EQ(parsed->tensors.at("none").type->dtype, std::nullopt);
  EXPECT_TRUE(parsed->tensors.at("scalar").shape.empty());
}

TEST(Safetensors, RefusesBadHeaders) {
  const std::string ok(32, '\0');
  ASSERT_EQ(Message(kTwo, ok), "ok");
  const auto one = [](const std::string& fields) { return R"({"a":{)" + fields + "}}"; };
  struct Case {
    std::string header;
    const char* expected;
  };
  const Case cases[] = {
      {R"({"a":)", "invalid JSON at byte"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} x)", "invalid JSON at byte"},
      {one(R"("dtype":"F31","shape":[8],"data_offsets":[0,32])"), "unknown dtype \"F31\""},
      {one(R"("dtype":7,"shape":[8],"data_offsets":[0,32])"), "a number where none belongs"},
      {one(R"("dtype":"F32","shape":[-8],"data_offsets":[0,32])"), "a negative number"},
      {one(R"("dtype":"F32","shape":[8.0],"data_offsets":[0,32])"), "not an integer"},
      {one(R"("dtype":"F32","shape":[1e400],"data_offsets":[0,32])"), "invalid JSON at byte"},
      {one(R"("dtype":"F32","shape":[null],"data_offsets":[0,32])"), "null"},
      {one(R"("dtype":"F32","shape":["8"],"data_offsets":[0,32])"), "a string where none belongs"},
      {one(R"("dtype":"F32","shape":[[8]],"data_offsets":[0,32])"), "an array where none belongs"},
      {one(R"("dtype":"F32","shape":8,"data_offsets":[0,32])"), "a number where none belongs"},
      {one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,32])"),
       "a shape that is too large"},
      {one(R"("dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,32])"),
       "a shape that is too large"},
      {one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,32])"),
       "larger than 2^63"},
      {one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8],"data_offsets":[0,32])"),
       "too many dimensions"},
      {one(R"("dtype":"F4","shape":[63],"data_offsets":[0,32])"), "whole number of bytes"},
      {one(R"("dtype":"F32","shape":[7],"data_offsets":[0,32])"), "data_offsets do not match"},
      {one(R"("dtype":"F32","shape":[8],"data_offsets":[32,0])"), "data_offsets do not match"},
      {one(R"("dtype":"F32","shape":[8],"data_offsets":[0])"), "two numbers"},
      {one(R"("dtype":"F32","shape":[8],"data_offsets":[0,32,64])"), "two numbers"},
      {one(R"("dtype":"F32","shape":[8],"data_offsets":[-32,0])"), "a negative number"},
      {one(R"("dtype":"F32","shape":[8])"), "data_offsets is missing"},
      {one(R"("shape":[8],"data_offsets":[0,32])"), "is missing"},
      {one(R"("dtype":"F32","dtype":"F32","shape":[8],"data_offsets":[0,32])"), "twice"},
      {one(R"("dtype":"F32","shape":[8],"data_offsets":[0,32],"extra":1)"), "unknown field"},
      {R"({"a":[1]})", "an array where none belongs"},
      {R"({"a":null})", "null"},
      {R"({"a":true})", "boolean"},
      {R"({"__metadata__":{"n":1}})", "a number where none belongs"},
      {R"({"__metadata__":{"n":{}}})", "an object where none belongs"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
       R"("a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}})",
       "listed twice"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
       R"("b":{"dtype":"F32","shape":[5],"data_offsets":[12,32]}})",
       "overlaps another tensor"},
      {R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},)"
       R"("b":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}})",
       "overlaps another tensor"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
       R"("b":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}})",
       "leaves a gap"},
      {one(R"("dtype":"F32","shape":[4],"data_offsets":[16,32])"), "leaves a gap"},
      {one(R"("dtype":"F32","shape":[7],"data_offsets":[0,28])"), "4 bytes after the last tensor"},
      {"{}", "32 bytes after the last tensor"},
      {std::string(1000, '{'), "invalid JSON"},
      {R"({"a":)" + std::string(100000, '['), "an array where none belongs"},
  };
  for (const Case& c : cases) {
    const std::string message = Message(c.header, ok);
    EXPECT_NE(message.find(c.expected), std::string::npos)
        << c.header.substr(0, 200) << " gave: " << message;
    EXPECT_EQ(message.find("x.safetensors"), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Safetensors, TruncatedFileNamesSizesAndTheFirstLostTensor) {
  const std::string bytes = SafetensorsBytes(kTwo, std::string(32, '\0'));
  const std::string needed = std::to_string(bytes.size());
  for (size_t cut = 1; cut <= 32; ++cut) {
    const Status status = Parse(bytes.substr(0, bytes.size() - cut));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::kModel);
    EXPECT_EQ(status.message(),
              "x.safetensors is truncated: header needs " + needed + " bytes, file has " +
                  std::to_string(bytes.size() - cut) + " (" + std::to_string(cut) +
                  " bytes missing); first tensor past the end: " + (cut <= 8 ? "\"b\"" : "\"a\""));
    EXPECT_EQ(status.hint(), "re-copy or re-export the file");
  }
  for (size_t size = 9; size < bytes.size() - 32; ++size) {  // cut inside the header
    EXPECT_NE(Parse(bytes.substr(0, size)).message().find(" is truncated: header needs "),
              std::string::npos);
  }
}

TEST(Safetensors, LargeOffsetsAreReportedInGigabytes) {
  const std::string header =
      R"({"w":{"dtype":"BF16","shape":[4096,2000000],"data_offsets":[0,16384000000]}})";
  const std::string bytes = SafetensorsBytes(header, "");
  const Status status = ParseSafetensorsHeader(bytes, int64_t{12884901888}, "/m/x.bin").status();
  EXPECT_NE(status.message().find("/m/x.bin is truncated: header needs 1638400008"),
            std::string::npos);
  EXPECT_NE(status.message().find("bytes, file has 12884901888 (3.3 GB missing)"),
            std::string::npos)
      << status.message();
}

TEST(Safetensors, FilesOfOtherKindsAreCalledByTheirNames) {
  const std::string rest(300, '\0');
  const auto expect = [&](const std::string& head, const std::string& what, const char* hint) {
    const Status status = Parse(head + rest);
    EXPECT_EQ(status.message(), "x.safetensors is " + what);
    EXPECT_NE(status.hint().find(hint), std::string::npos) << status.hint();
  };
  expect("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3945441280\n",
         "a git-lfs pointer, not the file itself", "git lfs pull");
  const std::string unknown = ", not a model file this program knows";
  expect("GGUF\x03", "a GGUF file" + unknown, "safetensors version");
  expect("PK\x03\x04", "a PyTorch checkpoint or another zip archive" + unknown,
         "safetensors version");
  expect("\x80\x02}q", "a pickle file" + unknown, "safetensors version");
  for (const char* magic : {"ak42", "ak47", "ak48", "qw3v"}) {
    expect(magic, "an old OrinMLLM export" + unknown, "kuiper_pack");
  }
}

TEST(Safetensors, UnknownFilesShowTheirFirstBytes) {
  EXPECT_NE(Parse("abc").message().find("first bytes 61 62 63)"), std::string::npos);
  EXPECT_NE(Parse("").message().find("is empty"), std::string::npos);
  // An impossible length, followed by what looks like JSON.
  EXPECT_NE(Parse(std::string(8, '\xff') + "{}").message().find("not a model file"),
            std::string::npos);
  EXPECT_NE(Parse(std::string(8, '\0') + "{}").message().find("invalid JSON"), std::string::npos);
}

TEST(Safetensors, OpenReportsWhatThePathIs) {
  const TempDir dir;
  const auto message = [](const std::string& path) {
    const auto file = SafetensorsFile::Open(path);
    return file.ok() ? std::string("ok") : file.status().message();
  };
  EXPECT_EQ(message(dir / "absent.bin"), "model file not found: " + (dir / "absent.bin"));
  EXPECT_EQ(message(dir.path()), dir.path() + " is not a regular file");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message(dir / "pipe"), (dir / "pipe") + " is not a regular file");
  WriteFile(dir / "empty", "");
  EXPECT_EQ(message(dir / "empty"), (dir / "empty") + " is empty");
}

TEST(Safetensors, BytesAreThoseOfTheFile) {
  const TempDir dir;
  std::string data;
  for (int i = 0; i < 32; ++i) data += static_cast<char>(i);
  WriteFile(dir / "x.safetensors", SafetensorsBytes(kTwo, data));
  const auto file = SafetensorsFile::Open(dir / "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const SafetensorsHeader& header = (*file)->header();
  EXPECT_EQ((*file)->Bytes(header.tensors.at("a")), std::string_view(data).substr(0, 24));
  EXPECT_EQ((*file)->Bytes(header.tensors.at("b")), std::string_view(data).substr(24));
}

// Changes each byte of a small file: the file is refused, or all views stay inside it.
TEST(Safetensors, SingleByteDamageNeverLeavesTheFile) {
  const std::string good = SafetensorsBytes(kTwo, std::string(32, '\0'));
  int accepted = 0;
  for (size_t i = 0; i < good.size() - 32; ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      const auto parsed = ParseSafetensorsHeader(bytes, static_cast<int64_t>(bytes.size()), "x");
      if (!parsed.ok()) continue;
      ++accepted;
      for (const auto& [name, entry] : parsed->tensors) {
        ASSERT_LE(0, entry.begin);
        ASSERT_LE(entry.begin, entry.end);
        ASSERT_LE(parsed->data_begin + entry.end, static_cast<int64_t>(bytes.size()));
      }
    }
  }
  EXPECT_GT(accepted, 0) << "renamed tensors are still good files";
}

}  // namespace
}  // namespace kuiper

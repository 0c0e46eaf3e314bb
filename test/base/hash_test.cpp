#include "kuiper/base/hash.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kuiper {
namespace {

// FNV-1a of bytes as its authors define it.
uint64_t NaiveFnv(std::string_view bytes) {
  uint64_t hash = 14695981039346656037u;
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// Returns the ids that these bytes encode, four bytes each, the lowest first.
std::vector<int32_t> IdsOf(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t id = 0;
    for (int k = 3; k >= 0; --k) id = id << 8 | static_cast<unsigned char>(bytes[i + k]);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// Checks the naive version with vectors of the authors' test suite (isthe.com, test_fnv.c).
TEST(HashTest, NaiveVersionGivesThePublishedVectors) {
  EXPECT_EQ(NaiveFnv(""), 0xcbf29ce484222325u);
  EXPECT_EQ(NaiveFnv("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(NaiveFnv("b"), 0xaf63df4c8601f1a5u);
  EXPECT_EQ(NaiveFnv("foobar"), 0x85944171f73967e8u);
}

TEST(HashTest, EmptyIsTheOffsetBasis) {
  EXPECT_EQ(Fnv1a64({}), 0xcbf29ce484222325u);
}

TEST(HashTest, IdsAreHashedAsLittleEndianBytes) {
  using std::string_view_literals::operator""sv;
  for (std::string_view bytes : {"foob"sv, "chongo w"sv, "\0\0\0\0"sv, "\xff\xff\xff\xff"sv,
                                 "\x01\x02\x03\x04\x80\x7f\x00\xfe"sv}) {
    EXPECT_EQ(Fnv1a64(IdsOf(bytes)), NaiveFnv(bytes));
  }
  std::mt19937 rng(5);
  for (int length = 0; length < 100; ++length) {
    std::string bytes(4 * length, '\0');
    for (char& c : bytes) c = static_cast<char>(rng());
    ASSERT_EQ(Fnv1a64(IdsOf(bytes)), NaiveFnv(bytes));
  }
}

TEST(HashTest, ContinuesFromAnEarlierHash) {
  const std::array<int32_t, 5> ids = {1, -1, 151643, 0, std::numeric_limits<int32_t>::min()};
  const std::span<const int32_t> all(ids);
  for (size_t n = 0; n <= ids.size(); ++n) {
    EXPECT_EQ(Fnv1a64(all.subspan(n), Fnv1a64(all.first(n))), Fnv1a64(all));
  }
}

TEST(HashTest, OfTextIsThatOfItsBytes) {
  for (const std::string text : {"", "a", "foobar", "\xff\x80"}) {
    EXPECT_EQ(Fnv1a64OfText(text), NaiveFnv(text));
  }
  EXPECT_EQ(HashText(Fnv1a64OfText("foobar")), "85944171f73967e8");  // from the authors' vectors
  EXPECT_EQ(HashText(1), "0000000000000001");
}

}  // namespace
}  // namespace kuiper

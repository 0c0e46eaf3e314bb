#include "kuiper/base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace kuiper {
namespace {

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Sha256Of(std::string_view text) {
  Sha256 sha;
  sha.Update(BytesOf(text));
  return HexText(sha.Finish());
}

// NIST's examples for FIPS 180-4, and two lengths close to a block from NIST's CAVP vectors.
TEST(Sha256Test, GivesThePublishedDigests) {
  EXPECT_EQ(Sha256Of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                     "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(Sha256Of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesOfAnyLengthGiveTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.push_back(static_cast<char>(i * 7));
  for (size_t length : {55u, 56u, 63u, 64u, 65u, 119u, 120u, 300u}) {
    const std::string whole = Sha256Of(text.substr(0, length));
    for (size_t piece : {1u, 3u, 63u, 64u, 65u, 128u}) {
      Sha256 sha;
      for (size_t at = 0; at < length; at += piece) {
        sha.Update(BytesOf(std::string_view(text).substr(0, length).substr(at, piece)));
      }
      EXPECT_EQ(HexText(sha.Finish()), whole) << length << " by " << piece;
    }
  }
}

}  // namespace
}  // namespace kuiper

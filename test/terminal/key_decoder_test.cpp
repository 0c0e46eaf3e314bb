#include "kuiper/terminal/key_decoder.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

using Kind = Key::Kind;

std::vector<Key> KeysOf(const std::string& bytes) {
  KeyDecoder decoder;
  decoder.Feed(bytes);
  std::vector<Key> keys;
  while (std::optional<Key> key = decoder.Next()) keys.push_back(*key);
  return keys;
}

Key OnlyKey(const std::string& bytes) {
  const std::vector<Key> keys = KeysOf(bytes);
  EXPECT_EQ(keys.size(), 1u) << bytes;
  return keys.empty() ? Key{} : keys[0];
}

TEST(KeyDecoder, CharactersComeWhole) {
  KeyDecoder decoder;
  const std::string bytes = "a你👍";
  std::string text;
  for (const char byte : bytes) {
    decoder.Feed(std::string(1, byte));
    while (const std::optional<Key> key = decoder.Next()) {
      EXPECT_EQ(key->kind, Kind::kText);
      text += "[" + key->text + "]";
    }
  }
  EXPECT_EQ(text, "[a][你][👍]");
}

TEST(KeyDecoder, SequencesOfDifferentTerminals) {
  for (const char* up : {"\x1b[A", "\x1bOA"}) EXPECT_EQ(OnlyKey(up).kind, Kind::kUp);
  for (const char* home : {"\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"}) {
    EXPECT_EQ(OnlyKey(home).kind, Kind::kHome);
  }
  EXPECT_EQ(OnlyKey("\x1b[3~").kind, Kind::kDelete);
  EXPECT_EQ(OnlyKey("\x1b[1;5C").kind, Kind::kWordRight);
  EXPECT_EQ(OnlyKey("\x1b"
                    "b")
                .kind,
            Kind::kWordLeft);
  EXPECT_EQ(OnlyKey("\x1b\r").kind, Kind::kNewLine);
  EXPECT_EQ(OnlyKey("\x7f").kind, Kind::kBackspace);
  EXPECT_EQ(OnlyKey("\r").kind, Kind::kEnter);
  EXPECT_EQ(OnlyKey("\n").kind, Kind::kEnter);
  EXPECT_EQ(OnlyKey("\x12").letter, 'R');
  EXPECT_EQ(OnlyKey("\x1b[24;5~").kind, Kind::kUnknown) << "F12 with Ctrl";
}

TEST(KeyDecoder, EscapeIsAKeyWhenNothingFollows) {
  KeyDecoder decoder;
  decoder.Feed("\x1b");
  EXPECT_FALSE(decoder.Next().has_value());
  EXPECT_TRUE(decoder.waits_for_escape());
  ASSERT_TRUE(decoder.Next(true).has_value());
  decoder.Feed("\x1b[");
  EXPECT_FALSE(decoder.Next().has_value());
  decoder.Feed("D");
  EXPECT_EQ(decoder.Next()->kind, Kind::kLeft);
}

TEST(KeyDecoder, APasteIsOneKey) {
  std::string pasted;
  for (int i = 0; i < 5000; ++i) pasted += "line " + std::to_string(i) + "\n";
  KeyDecoder decoder;
  const std::string bytes = "\x1b[200~" + pasted + "\x1b[201~x";
  std::vector<Key> keys;
  for (size_t i = 0; i < bytes.size(); i += 1000) {
    decoder.Feed(bytes.substr(i, 1000));
    while (std::optional<Key> key = decoder.Next()) keys.push_back(*key);
  }
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].kind, Kind::kPaste);
  EXPECT_EQ(keys[0].text, pasted);
  EXPECT_EQ(keys[1].text, "x");
}

TEST(KeyDecoder, PastesAreText) {
  EXPECT_EQ(OnlyKey("\x1b[200~a\r\nb\rc\td\x1b[A\x03\x1b[201~").text, "a\nb\nc\td[A");
  EXPECT_EQ(OnlyKey("\x1b[200~\x1b[201~").text, "");
}

}  // namespace
}  // namespace kuiper

#include "kuiper/command_line/config_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "test/temp_dir.h"

namespace kuiper {
namespace {

using Args = std::vector<std::string>;

// The arguments of a run whose file is --config.
class ConfigFileTest : public testing::Test {
 protected:
  StatusOr<Args> Run(const std::string& text, const Args& more) {
    std::ofstream(path_) << text;
    Args arguments = {"--config", path_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return WithConfigFile(arguments, table_, "config");
  }

  const test::TempDir dir_;
  const std::string path_ = dir_ / "flags.txt";
  std::string config_;
  int port_ = 0;
  bool verbose_ = false;
  const FlagTable table_{
      .flags = {MakeFlag("config", &config_, "a file", {}, "FILE"),
                MakeFlag("port", &port_, "a port"), MakeFlag("verbose", &verbose_, "more lines")},
      .aliases = {}};
};

TEST_F(ConfigFileTest, LinesStandBeforeTheArguments) {
  const auto all = Run("# a comment\n\n port = 80 \nverbose\n", {"--port", "90"});
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(*all, (Args{"--port=80", "--verbose", "--config", path_, "--port", "90"}));
  EXPECT_EQ(Run("\xEF\xBB\xBFport = 80\r\n", {}).value(), (Args{"--port=80", "--config", path_}));
}

TEST_F(ConfigFileTest, MistakesNameTheirLine) {
  EXPECT_EQ(Run("port = 80\nport = x\n", {}).status().message(),
            path_ + ", line 2: --port: 'x' is not a whole number");
  EXPECT_EQ(Run("config = other\n", {}).status().message(),
            path_ + ", line 1: --config=other is not allowed in a file");
  EXPECT_EQ(Run("help\n", {}).status().message(),
            path_ + ", line 1: --help is not allowed in a file");
}

TEST_F(ConfigFileTest, AFileThatIsMissingIsNamed) {
  const auto all = WithConfigFile({"--config", "/nonexistent"}, table_, "config");
  EXPECT_EQ(all.status().code(), StatusCode::kInput);
  EXPECT_EQ(all.status().message(), "cannot open /nonexistent: No such file or directory");
}

TEST_F(ConfigFileTest, WithoutTheFlagNothingIsRead) {
  const auto all = WithConfigFile({"--port", "90"}, table_, "config");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(*all, (Args{"--port", "90"}));
}

}  // namespace
}  // namespace kuiper

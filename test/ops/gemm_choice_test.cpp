// The choice among a library's algorithms, with fake algorithms, and the file that stores it.
#include "kuiper/kernels/cuda/gemm_choice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "test/log_capture.h"
#include "test/model/model_files.h"

namespace kuiper::test {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Algorithms with these durations; those in `unusable` are refused. Counts how often it times.
struct FakeLibrary {
  std::vector<double> seconds = {4, 2, 1, 3};
  std::set<int> unusable;
  int num_timed = 0;

  GemmCandidates Candidates(const std::string& key = "H200, 8 x 8") {
    return {key, static_cast<int>(seconds.size()), [this](int i) { return !unusable.contains(i); },
            [this](int i) {
              EXPECT_FALSE(unusable.contains(i));
              ++num_timed;
              return seconds.at(static_cast<size_t>(i));
            }};
  }
};

class GemmChoiceTest : public testing::Test {
 protected:
  GemmChoices Open() const { return GemmChoices(path_); }
  std::optional<int> Choose(FakeLibrary& library, GemmTiming timing) const {
    GemmChoices choices = Open();
    return ChooseGemm(library.Candidates(), timing, choices);
  }

  const TempDir dir_;
  const std::string path_ = dir_ / "cache/kuiper/matrix_products.txt";
};

TEST_F(GemmChoiceTest, OrdinaryRunsTimeNothingAndWriteNothing) {
  FakeLibrary library;
  EXPECT_EQ(Choose(library, GemmTiming::kNever), 0);
  library.unusable = {0, 1};
  EXPECT_EQ(Choose(library, GemmTiming::kNever), 2);
  library.unusable = {0, 1, 2, 3};
  EXPECT_EQ(Choose(library, GemmTiming::kNever), std::nullopt);
  EXPECT_EQ(library.num_timed, 0);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "cache"));
}

TEST_F(GemmChoiceTest, TheFastestUsableOneIsTaken) {
  FakeLibrary library;
  EXPECT_EQ(Choose(library, GemmTiming::kForThisRun), 2);
  library.unusable = {2};
  EXPECT_EQ(Choose(library, GemmTiming::kForThisRun), 1);
  library.seconds = {kNever, 2, 1, 2};
  EXPECT_EQ(Choose(library, GemmTiming::kForThisRun), 1) << "of equal ones the first";
  library.num_timed = 0;
  library.unusable = {0, 1, 3};
  EXPECT_EQ(Choose(library, GemmTiming::kForThisRun), 2);
  EXPECT_EQ(library.num_timed, 0) << "one alone is the fastest";
  library.unusable = {0, 1, 2, 3};
  EXPECT_EQ(Choose(library, GemmTiming::kForThisRun), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "cache"));
}

TEST_F(GemmChoiceTest, LaterRunsMakeTheChoiceInTheFile) {
  FakeLibrary first;
  EXPECT_EQ(Choose(first, GemmTiming::kForTheFile), 2);
  FakeLibrary later;
  later.seconds = {1, 2, 3, 4};  // the clock gives different times now
  for (const GemmTiming timing :
       {GemmTiming::kNever, GemmTiming::kForThisRun, GemmTiming::kForTheFile}) {
    EXPECT_EQ(Choose(later, timing), 2);
  }
  EXPECT_EQ(later.num_timed, 0);
  // Another device, library or shape is another key.
  GemmChoices choices = Open();
  EXPECT_EQ(ChooseGemm(later.Candidates("Orin, 8 x 8"), GemmTiming::kNever, choices), 0);
  EXPECT_EQ(ChooseGemm(later.Candidates("Orin, 8 x 8"), GemmTiming::kForTheFile, choices), 0);
  EXPECT_EQ(Open().Find("H200, 8 x 8"), 2) << "other lines stay";
}

TEST_F(GemmChoiceTest, AChoiceThatIsNotUsableIsPassedOver) {
  FakeLibrary library;
  EXPECT_EQ(Choose(library, GemmTiming::kForTheFile), 2);
  library.unusable = {2};
  EXPECT_EQ(Choose(library, GemmTiming::kNever), 0);
  library.seconds = {4, 2};
  EXPECT_EQ(Choose(library, GemmTiming::kNever), 0) << "an index beyond the candidates";
}

// If two programs time at the same time, both use the result that was stored first.
TEST_F(GemmChoiceTest, FirstStoredChoiceWins) {
  GemmChoices one = Open(), other = Open();
  EXPECT_EQ(one.Keep("key", 1), 1);
  EXPECT_EQ(other.Keep("key", 2), 1);
  EXPECT_EQ(other.Keep("another", 3), 3);
  EXPECT_EQ(Open().Find("key"), 1);
  EXPECT_EQ(Open().Find("another"), 3);
}

TEST_F(GemmChoiceTest, NothingIsLostWhenManyWrite) {
  constexpr int kWriters = 4, kKeys = 25;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      GemmChoices choices = Open();
      for (int i = 0; i < kKeys; ++i) {
        EXPECT_EQ(choices.Keep(std::to_string(w) + " " + std::to_string(i), i), i);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const GemmChoices all = Open();
  for (int w = 0; w < kWriters; ++w) {
    for (int i = 0; i < kKeys; ++i) {
      EXPECT_EQ(all.Find(std::to_string(w) + " " + std::to_string(i)), i);
    }
  }
}

TEST_F(GemmChoiceTest, DamagedFilesAreIgnoredAndWrittenAnew) {
  ASSERT_EQ(Open().Keep("key", 1), 1);
  const std::string good = ReadFile(path_);
  for (const std::string& bad :
       {std::string(), std::string("key\n"), good.substr(0, good.size() - 1), good + "x\tother\n",
        good + "7 other\n", good + "-1\tother\n", good + "99999999999\tother\n", good + "\n",
        "other heading\n" + good, good + std::string(2 << 20, 'x')}) {
    WriteFile(path_, bad);
    const test::LogCapture capture;
    GemmChoices choices = Open();
    const std::string& log = capture.text();
    EXPECT_NE(log.find("damaged and ignored"), std::string::npos) << log;
    EXPECT_EQ(choices.Find("key"), std::nullopt) << bad.substr(0, 100);
    EXPECT_EQ(choices.Keep("key", 5), 5);
    EXPECT_EQ(Open().Find("key"), 5);
  }
}

// Then every run uses the library's order, even if it was asked to time.
TEST_F(GemmChoiceTest, WithoutAFileRunsStillAgree) {
  WriteFile(dir_ / "cache", "a file where a folder is needed");
  for (const std::string& path : {path_, std::string()}) {
    FakeLibrary library;
    GemmChoices choices(path);
    const test::LogCapture capture;
    for (const char* key : {"one", "two"}) {
      EXPECT_EQ(ChooseGemm(library.Candidates(key), GemmTiming::kForTheFile, choices), 0);
    }
    const std::string& log = capture.text();
    const size_t at = log.find("cannot be kept");
    EXPECT_NE(at, std::string::npos) << log;
    EXPECT_EQ(log.find("cannot be kept", at + 1), std::string::npos) << "once is enough";
  }
  EXPECT_FALSE(std::filesystem::exists(".lock"));
}

TEST(GemmChoicePathTest, TheNearestVariableDecides) {
  const auto path = [](const char* kuiper, const char* xdg, const char* home) {
    setenv("KUIPER_CACHE_DIR", kuiper, 1);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    return GemmChoices::DefaultPath();
  };
  const char* const old_home = std::getenv("HOME");
  const std::string home = old_home == nullptr ? "" : old_home;
  EXPECT_EQ(path("/k", "/x", "/h"), "/k/matrix_products.txt");
  EXPECT_EQ(path("", "/x", "/h"), "/x/kuiper/matrix_products.txt");
  EXPECT_EQ(path("", "", "/h"), "/h/.cache/kuiper/matrix_products.txt");
  EXPECT_EQ(path("", "", ""), "");
  unsetenv("KUIPER_CACHE_DIR");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace kuiper::test

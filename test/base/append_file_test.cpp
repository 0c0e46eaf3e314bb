#include "kuiper/base/append_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "test/temp_dir.h"

// Faults of the system's write calls, for one file at a time. All such calls of the test program
// come here instead of the C library; without faults they are passed on.
namespace {

struct Faults {
  int interrupts = 0;      // number of writes that are interrupted before they begin
  size_t most = SIZE_MAX;  // most bytes that one write takes
  size_t room = SIZE_MAX;  // bytes until the disk is full
  bool sync_fails = false;
  int num_syncs = 0;
};
Faults* g_faults = nullptr;

}  // namespace

extern "C" ssize_t write(int fd, const void* data, size_t size) {
  if (g_faults != nullptr && fd > STDERR_FILENO) {
    if (g_faults->interrupts > 0) {
      --g_faults->interrupts;
      return errno = EINTR, -1;
    }
    if (g_faults->room == 0) return errno = ENOSPC, -1;
    size = std::min({size, g_faults->most, g_faults->room});
    g_faults->room -= size;
  }
  return syscall(SYS_write, fd, data, size);
}

extern "C" int fdatasync(int fd) {
  if (g_faults != nullptr) {
    ++g_faults->num_syncs;
    if (g_faults->sync_fails) return errno = EIO, -1;
  }
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace kuiper {
namespace {

class AppendFileTest : public testing::Test {
 protected:
  ~AppendFileTest() override { g_faults = nullptr; }

  std::unique_ptr<AppendFile> Open() {
    auto output = AppendFile::Open(path_);
    EXPECT_TRUE(output.ok()) << output.status().message();
    return output.ok() ? std::move(*output) : nullptr;
  }
  // Reads the lines of an earlier run.
  std::vector<std::string> Finished(AppendFile& output) {
    std::vector<std::string> lines;
    while (const auto line = output.NextFinished()) lines.push_back(*line);
    return lines;
  }
  std::string Content() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  const test::TempDir dir_;
  const std::string path_ = dir_ / "answers.jsonl";
  Faults faults_;
};

TEST_F(AppendFileTest, InterruptedAndShortWritesAreCompleted) {
  const auto output = Open();
  faults_.interrupts = 3;
  faults_.most = 4;
  g_faults = &faults_;
  const Status written = output->Write("first line\nsecond\n");
  EXPECT_TRUE(written.ok()) << written.message();
  EXPECT_EQ(faults_.interrupts, 0);
  EXPECT_EQ(faults_.num_syncs, 1) << "once for all lines, and after the last byte";
  EXPECT_EQ(Content(), "first line\nsecond\n");
}

TEST(CheckWritable, LeavesEverythingAsItWas) {
  namespace fs = std::filesystem;
  const test::TempDir folder;
  const std::string& dir = folder.path();
  const std::string file = folder / "file", link = folder / "link";
  EXPECT_TRUE(CheckWritable(file).ok());
  EXPECT_FALSE(fs::exists(file));
  std::ofstream(file) << "mine";
  EXPECT_TRUE(CheckWritable(file).ok());
  EXPECT_EQ(fs::file_size(file), 4u);
  fs::create_symlink(dir + "/none", link);
  EXPECT_TRUE(CheckWritable(link).ok());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(CheckWritable("/dev/null").ok());
  EXPECT_EQ(CheckWritable(dir).message(), "cannot write " + dir + ": Is a directory");
  EXPECT_EQ(CheckWritable(dir + "/a/b").code(), StatusCode::kInternal);
  // A pipe without a reader: opening it would wait.
  ASSERT_EQ(mkfifo((dir + "/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(CheckWritable(dir + "/pipe").ok());
}

TEST_F(AppendFileTest, FailedSyncIsAnError) {
  const auto output = Open();
  faults_.sync_fails = true;
  g_faults = &faults_;
  const Status written = output->Write("line\n");
  EXPECT_EQ(written.code(), StatusCode::kInternal);
  EXPECT_EQ(written.message(), "cannot write " + path_ + ": Input/output error");
}

TEST_F(AppendFileTest, FullDiskLeavesATornLineThatTheNextRunCutsOff) {
  {
    const auto output = Open();
    ASSERT_TRUE(output->Write("first\n").ok());
    faults_.room = 3;
    g_faults = &faults_;
    const Status written = output->Write("second\n");
    EXPECT_EQ(written.message(), "cannot write " + path_ + ": No space left on device");
    EXPECT_EQ(faults_.num_syncs, 0);
    EXPECT_EQ(Content(), "first\nsec");
  }
  g_faults = nullptr;
  const auto output = Open();
  EXPECT_EQ(Finished(*output), std::vector<std::string>{"first"});
  EXPECT_EQ(output->partial_line(), "sec");
  EXPECT_EQ(Content(), "first\nsec") << "whose that is, the caller knows";
  ASSERT_TRUE(output->CutPartialLine().ok());
  EXPECT_EQ(output->partial_line(), "");
  ASSERT_TRUE(output->Write("again\n").ok());
  EXPECT_EQ(Content(), "first\nagain\n");
}

TEST_F(AppendFileTest, TornEndsOfAnyLengthAreCutOff) {
  constexpr size_t kKept = 1 << 16;  // bytes of a partial line that are kept
  for (const size_t length : {size_t{1}, size_t{9000}, kKept - 1, kKept, kKept + 1, 3 * kKept}) {
    for (const std::string& whole :
         {std::string(), std::string("a\n"), std::string(5000, 'b') + "\n"}) {
      std::ofstream(path_) << whole << std::string(length, 'x');
      const auto output = Open();
      EXPECT_EQ(Finished(*output).size(), whole.empty() ? 0u : 1u);
      EXPECT_EQ(output->partial_line(), std::string(std::min(length, kKept), 'x'));
      ASSERT_TRUE(output->CutPartialLine().ok());
      EXPECT_EQ(Content(), whole) << length;
    }
  }
}

TEST_F(AppendFileTest, OneProcessWritesAtATime) {
  const auto output = Open();
  const auto second = AppendFile::Open(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(), path_ + " is being written by another process");
}

}  // namespace
}  // namespace kuiper

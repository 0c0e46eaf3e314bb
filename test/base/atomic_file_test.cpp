#include "kuiper/base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "test/model/model_files.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;

using test::ReadFile;
using test::TempDir;
using test::WriteFile;

void Save(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  ASSERT_TRUE(file.Write(text.data(), text.size()).ok());
  ASSERT_TRUE(file.Commit().ok());
}

auto NumFiles(const TempDir& dir) {
  return std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator());
}

TEST(AtomicFile, AppearsWhenItIsComplete) {
  const TempDir dir;
  const std::string path = dir / "file";
  {
    AtomicFile file(path);
    ASSERT_TRUE(file.Write("new", 3).ok());
    EXPECT_FALSE(fs::exists(path));
    ASSERT_TRUE(file.Commit().ok());
    EXPECT_EQ(ReadFile(path), "new");
  }
  AtomicFile(path).Write("half", 4);
  EXPECT_EQ(ReadFile(path), "new");
  EXPECT_EQ(NumFiles(dir), 1);
}

TEST(AtomicFile, KeepsPermissions) {
  const TempDir dir;
  const std::string path = dir / "file";
  WriteFile(path, "old");
  const fs::perms mine = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(path, mine);
  Save(path, "new");
  EXPECT_EQ(ReadFile(path), "new");
  EXPECT_EQ(fs::status(path).permissions(), mine);
}

TEST(AtomicFile, KeepsSymbolicLinks) {
  const TempDir dir;
  WriteFile(dir / "target", "old");
  fs::create_symlink("target", dir / "link");
  Save(dir / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_EQ(ReadFile(dir / "target"), "new");
  EXPECT_EQ(NumFiles(dir), 2);
}

TEST(AtomicFile, MakesTheTargetOfADanglingLink) {
  const TempDir dir;
  fs::create_directory(dir / "folder");
  fs::create_symlink("folder/next", dir / "link");
  fs::create_symlink("target", dir / "folder/next");
  Save(dir / "link", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_TRUE(fs::is_symlink(dir / "folder/next"));
  EXPECT_EQ(ReadFile(dir / "folder/target"), "new");
}

TEST(AtomicFile, LeftoversOfKilledWritersDoNotMatter) {
  const TempDir dir;
  const std::string path = dir / "file";
  const pid_t writer = fork();
  if (writer == 0) {
    AtomicFile file(path);
    file.Write("half", 4);
    _exit(file.status().ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(NumFiles(dir), 1);
  {
    AtomicFile first(path), second(path);
    first.Write("first", 5);
    second.Write("second", 6);
    EXPECT_TRUE(second.Commit().ok());
    EXPECT_TRUE(first.Commit().ok());
  }
  EXPECT_EQ(ReadFile(path), "first");
  EXPECT_EQ(NumFiles(dir), 2);
}

#ifdef __linux__
// Text that the process writes to the open file before and after stays, under any name of the file.
TEST(AtomicFile, NeverReplacesAnOpenFile) {
  const TempDir dir;
  const std::string path = dir / "file";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const std::string number = std::to_string(fd);
  fs::create_symlink("/dev/fd/" + number, dir / "link");
  ASSERT_EQ(write(fd, "a", 1), 1);
  Save("/dev/fd/" + number, "b");
  Save("/proc/self/fd/" + number, "c");
  Save(dir / "link", "d");
  ASSERT_EQ(write(fd, "e", 1), 1);
  close(fd);
  EXPECT_EQ(ReadFile(path), "abcde");
  EXPECT_EQ(NumFiles(dir), 2);
}
#endif

TEST(AtomicFile, NeverReplacesWhatIsNoRegularFile) {
  const TempDir dir;
  const std::string path = dir / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  Save(path, "new");
  EXPECT_TRUE(fs::is_fifo(path));
  char content[8];
  const ssize_t n = read(reader, content, sizeof(content));
  EXPECT_EQ(std::string(content, n > 0 ? n : 0), "new");
  close(reader);
}

TEST(AtomicFile, Failures) {
  const TempDir dir;
  AtomicFile missing(dir / "no/file");
  EXPECT_EQ(missing.status().code(), StatusCode::kInternal);
  EXPECT_EQ(missing.Write("x", 1).message(),
            "cannot write " + (dir / "no/file") + ": No such file or directory");
  EXPECT_FALSE(missing.Commit().ok());
  EXPECT_FALSE(AtomicFile(dir.path()).status().ok()) << "a folder";
  fs::create_symlink("circle", dir / "circle");
  EXPECT_FALSE(AtomicFile(dir / "circle").status().ok());
  EXPECT_TRUE(fs::is_symlink(dir / "circle"));
}

}  // namespace
}  // namespace kuiper

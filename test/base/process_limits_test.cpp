#include "kuiper/base/process_limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "kuiper/base/parallel.h"
#include "test/temp_dir.h"

namespace kuiper {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

std::vector<std::string> Dirs(std::string_view text, std::string_view controller) {
  std::vector<std::string> dirs;
  for (const ControlGroup& group : ParseControlGroups(text, controller)) {
    dirs.push_back(group.dir + (group.version == 1 ? " 1" : " 2"));
  }
  return dirs;
}

TEST(ControlGroups, AreThoseOfTheControllerUpToTheRoot) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Dirs("0::/user.slice/a\n", "memory"),
            (Strings{"/sys/fs/cgroup/user.slice/a 2", "/sys/fs/cgroup/user.slice 2",
                     "/sys/fs/cgroup 2"}));
  const char* old = "9:name=systemd:/x\n4:cpu,cpuacct:/a\n3:memory:/k/inner\n2:cpuset:/\n";
  EXPECT_EQ(Dirs(old, "memory"), (Strings{"/sys/fs/cgroup/memory/k/inner 1",
                                          "/sys/fs/cgroup/memory/k 1", "/sys/fs/cgroup/memory 1"}));
  EXPECT_EQ(Dirs(old, "cpu"), (Strings{"/sys/fs/cgroup/cpu/a 1", "/sys/fs/cgroup/cpu 1"}));
  EXPECT_EQ(Dirs("5:memory:/\n0::/\n", "memory"),
            (Strings{"/sys/fs/cgroup/memory 1", "/sys/fs/cgroup 2"}));
  EXPECT_EQ(Dirs("", "memory"), Strings{});
  EXPECT_EQ(Dirs("nonsense\n:\n", "cpu"), Strings{});
}

class Group {
 public:
  explicit Group(int version) : group_{dir_.path(), version} {}
  Group& Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text << '\n';
    return *this;
  }
  size_t free_memory() const { return FreeMemoryOf(group_); }
  double cpus() const { return CpusOf(group_); }

 private:
  test::TempDir dir_;
  ControlGroup group_;
};

TEST(ControlGroups, LeaveTheirLimitLessWhatIsUsed) {
  Group now(2), old(1);
  EXPECT_EQ(now.free_memory(), kUnlimited);
  EXPECT_EQ(old.free_memory(), kUnlimited);
  now.Write("memory.max", "1000").Write("memory.current", "400");
  now.Write("memory.stat", "anon 1\ninactive_file 100");
  EXPECT_EQ(now.free_memory(), 700u);
  now.Write("memory.max", "max");
  EXPECT_EQ(now.free_memory(), kUnlimited);
  old.Write("memory.limit_in_bytes", "314572800").Write("memory.usage_in_bytes", "14572800");
  old.Write("memory.stat", "inactive_file 7\ntotal_inactive_file 4572800");
  EXPECT_EQ(old.free_memory(), 304572800u);
  old.Write("memory.usage_in_bytes", "400000000");
  EXPECT_EQ(old.free_memory(), 0u);
}

TEST(ControlGroups, LimitCpusByTheirQuota) {
  Group now(2), old(1);
  EXPECT_EQ(now.cpus(), HUGE_VAL);
  now.Write("cpu.max", "150000 100000");
  EXPECT_EQ(now.cpus(), 1.5);
  now.Write("cpu.max", "max 100000");
  EXPECT_EQ(now.cpus(), HUGE_VAL);
  old.Write("cpu.cfs_quota_us", "-1");
  old.Write("cpu.cfs_period_us", "100000");
  EXPECT_EQ(old.cpus(), HUGE_VAL);
  old.Write("cpu.cfs_quota_us", "50000");
  EXPECT_EQ(old.cpus(), 0.5);
}

TEST(UsableCores, AreWhatParallelRangesTakes) {
  EXPECT_GE(UsableCores(), 1);
  EXPECT_LE(UsableCores(), static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_EQ(NumThreads(0), UsableCores());
  EXPECT_EQ(NumThreads(7), 7);
}

}  // namespace
}  // namespace kuiper

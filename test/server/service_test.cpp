// Messages to a service manager, received on the test's own socket; and release of idle memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "test/log_capture.h"
#include "test/server/served_engine.h"
#include "test/temp_dir.h"

namespace kuiper {
namespace {

using test::Eventually;
using test::ServedEngine;

// The service manager's side: a datagram socket at "/path" or "@name".
class Manager {
 public:
  explicit Manager(const std::string& path) : path_(path) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    if (path[0] == '@') address.sun_path[0] = '\0';
    size_t size = offsetof(sockaddr_un, sun_path) + path.size();
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), static_cast<socklen_t>(size)), 0);
  }
  ~Manager() { close(fd_); }
  // Returns the lines received since the start.
  std::vector<std::string> Lines() {
    char bytes[8192];
    for (ssize_t n; (n = recv(fd_, bytes, sizeof(bytes), 0)) > 0;) {
      text_.append(bytes, static_cast<size_t>(n));
    }
    std::vector<std::string> lines;
    std::istringstream in(text_);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  // Returns the number of lines that begin with `begin`.
  int64_t Count(const std::string& begin) {
    const auto lines = Lines();
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& line) { return line.starts_with(begin); });
  }
  ServerSettings settings(std::chrono::microseconds watchdog = {}) const {
    ServerSettings settings;
    settings.service = {path_, watchdog};
    settings.drain_timeout = std::chrono::seconds(5);
    return settings;
  }

 private:
  int fd_ = -1;
  const std::string path_;
  std::string text_;
};

std::string AbstractName() {
  return "@kuiper-test-" + std::to_string(getpid());
}

TEST(Service, HearsThatTheServerIsReadyAndThatItEnds) {
  const test::TempDir dir;
  for (const std::string& path : {AbstractName(), dir / "notify"}) {
    Manager manager(path);
    const ServerSettings settings = manager.settings();
    ServedEngine served({}, settings, false);
    served.server().Loading(0.371);
    served.server().Loading(0.372);
    EXPECT_TRUE(Eventually([&] { return manager.Count("STATUS=loading, 37 %") == 1; })) << path;
    EXPECT_EQ(manager.Count("EXTEND_TIMEOUT_USEC=120000000"), 1);
    EXPECT_EQ(manager.Count("READY=1"), 0);
    served.Open(settings);
    EXPECT_TRUE(Eventually([&] { return manager.Count("READY=1") == 1; }));
    EXPECT_TRUE(
        Eventually([&] { return manager.Count("STATUS=ready, 0 running, 0 waiting") == 1; }));
    EXPECT_EQ(manager.Count("STOPPING=1"), 0);
    served.server().Drain();
    EXPECT_TRUE(Eventually([&] { return manager.Count("STOPPING=1") == 1; }));
    EXPECT_EQ(manager.Count("EXTEND_TIMEOUT_USEC=15000000"), 1) << "the drain, and ten seconds";
    EXPECT_EQ(manager.Count("WATCHDOG"), 0) << "nobody asked for it";
  }
}

TEST(Service, TheWatchdogHearsOfAnEngineThatWorksOnly) {
  Manager manager(AbstractName());
  const ServerSettings settings = manager.settings(std::chrono::milliseconds(400));
  ServedEngine served({}, settings);
  EXPECT_TRUE(Eventually([&] { return manager.Count("WATCHDOG=1") >= 3; })) << "also when idle";
  auto held = served.Hold();
  const int64_t before = manager.Count("WATCHDOG=1");
  std::this_thread::sleep_for(std::chrono::seconds(2));
  // One message may already have been on its way.
  EXPECT_LE(manager.Count("WATCHDOG=1"), before + 1);
  EXPECT_EQ(served.Ask("GET", "/ping").status, 200) << "the network goes on";
  held.reset();
  EXPECT_TRUE(Eventually([&] { return manager.Count("WATCHDOG=1") >= before + 3; }));
  EXPECT_EQ(served.Chat({}).status, 200);
}

// A manager that does not read must not block the network; it receives as much as fits.
TEST(Service, AManagerThatDoesNotReadIsNotWaitedFor) {
  Manager manager(AbstractName());
  const ServerSettings settings = manager.settings();
  ServedEngine served({}, settings);
  for (int i = 0; i < 2000; ++i) served.server().Loading(i % 100 / 100.0);
  EXPECT_EQ(served.Chat({}).status, 200);
  EXPECT_GT(manager.Count("STATUS=loading"), 0);
  EXPECT_TRUE(Eventually([&] { return manager.Count("STATUS=ready") > 0; })) << "what came last";
}

TEST(Service, ASocketThatIsNotThereIsAWarning) {
  for (const char* path : {"/no/such/socket", "@kuiper-no-such-name", "vsock:2:1", "relative"}) {
    test::LogCapture log;
    ServerSettings settings;
    settings.service = {path, std::chrono::seconds(1)};
    {
      ServedEngine served({}, settings);
      EXPECT_EQ(served.Chat({}).status, 200);
    }
    EXPECT_NE(log.text().find(path), std::string::npos) << path;
  }
}

TEST(Service, TheEnvironmentTellsOfIt) {
  const auto with = [](const char* socket, const char* time, const char* pid) {
    setenv("NOTIFY_SOCKET", socket, 1);
    setenv("WATCHDOG_USEC", time, 1);
    setenv("WATCHDOG_PID", pid, 1);
    const ServiceSettings settings = ServiceOfEnvironment();
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
    return settings;
  };
  const ServiceSettings all = with("@x", "3000000", std::to_string(getpid()).c_str());
  EXPECT_EQ(all.notify_socket, "@x");
  EXPECT_EQ(all.watchdog, std::chrono::seconds(3));
  EXPECT_EQ(with("@x", "3000000", "").watchdog, std::chrono::seconds(3));
  EXPECT_EQ(with("@x", "3000000", "1").watchdog.count(), 0) << "another process is meant";
  EXPECT_EQ(with("@x", "soon", "").watchdog.count(), 0);
  EXPECT_EQ(ServiceOfEnvironment().notify_socket, "");
}

TEST(Service, AnIdleCacheIsEmptiedWhoeverWatches) {
  ServerSettings settings;
  settings.release_after = std::chrono::milliseconds(500);
  ServedEngine served({}, settings);
  EXPECT_EQ(served.Chat({}).status, 200);
  const auto used = [&] {
    const auto answer = served.Ask("GET", "/kuiper/kv?once=1");
    return nlohmann::json::parse(answer.body)["used"].get<int>();
  };
  // The questions come more often than the idle time, but do not delay the release.
  EXPECT_TRUE(Eventually([&] { return used() == 0; }));
  const auto again = nlohmann::json::parse(served.Chat({}).body);
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

}  // namespace
}  // namespace kuiper

#include "kuiper/server/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "kuiper/base/log.h"

namespace kuiper {
namespace {

// Time to load the next percent of the model.
constexpr std::chrono::microseconds kLoadingPatience = std::chrono::minutes(2);
constexpr std::chrono::microseconds kEndPatience = std::chrono::seconds(10);
constexpr std::chrono::seconds kStatusInterval{1};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns a datagram socket connected to the path ("@name" = abstract socket), or -1 and errno.
int Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@')) {
    errno = EINVAL;
    return -1;
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  if (path[0] == '@') address.sun_path[0] = '\0';
  // The address size gives the length of an abstract name, which has no terminating zero.
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() +
                                           (path[0] == '@' ? 0 : 1));
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

ServiceSettings ServiceOfEnvironment() {
  ServiceSettings settings;
  settings.notify_socket = Environment("NOTIFY_SOCKET");
  const std::string pid = Environment("WATCHDOG_PID");
  if (pid.empty() || pid == std::to_string(getpid())) {
    const std::string time = Environment("WATCHDOG_USEC");
    settings.watchdog = std::chrono::microseconds(std::strtoll(time.c_str(), nullptr, 10));
  }
  return settings;
}

ServiceManager::ServiceManager(HttpServer& http, const ServiceSettings& settings)
    : http_(http), watchdog_(settings.watchdog) {
  if (settings.notify_socket.empty()) return;
  fd_ = Connect(settings.notify_socket);
  if (fd_ >= 0) return;
  LogWarning("cannot notify the service manager: NOTIFY_SOCKET is " + settings.notify_socket +
             ": " + std::strerror(errno));
}

ServiceManager::~ServiceManager() {
  if (fd_ >= 0) close(fd_);
}

void ServiceManager::OnLoading(double share) {
  const int percent = static_cast<int>(share * 100);
  if (percent == percent_) return;
  percent_ = percent;
  Add("STATUS", "loading, " + std::to_string(percent) + " %");
  Add("EXTEND_TIMEOUT_USEC", std::to_string(kLoadingPatience.count()));
  Flush();
}

void ServiceManager::OnReady(EngineLoop& loop) {
  loop_ = &loop;
  state_ = "ready";
  Add("READY", "1");
  Flush();
}

void ServiceManager::OnStopping(std::chrono::milliseconds timeout) {
  state_ = "draining";
  Add("STOPPING", "1");
  Add("EXTEND_TIMEOUT_USEC", std::to_string((timeout + kEndPatience).count()));
  Flush();
}

void ServiceManager::OnTick(int num_running, int num_waiting) {
  if (fd_ < 0) return;
  const Clock::time_point now = Clock::now();
  const std::string status = state_ + ", " + std::to_string(num_running) + " running, " +
                             std::to_string(num_waiting) + " waiting";
  if (loop_ != nullptr && status != status_ && now - status_sent_at_ >= kStatusInterval) {
    status_sent_at_ = now;
    status_ = status;
    Add("STATUS", status);
  }
  if (loop_ != nullptr && watchdog_.count() > 0 && !waits_for_engine_ && now >= next_sign_)
    AskEngine();
  Flush();
}

void ServiceManager::AskEngine() {
  waits_for_engine_ = true;
  next_sign_ = Clock::now() + watchdog_ / 2;
  loop_->Call([this](Engine&) {
    http_.Post([this] {
      waits_for_engine_ = false;
      Add("WATCHDOG", "1");
      Flush();
    });
  });
}

void ServiceManager::Add(const std::string& name, const std::string& value) {
  if (fd_ >= 0) unsent_[name] = value;
}

void ServiceManager::Flush() {
  if (fd_ < 0 || unsent_.empty()) return;
  std::string text;
  for (const auto& [name, value] : unsent_) text.append(name).append("=").append(value) += '\n';
  const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  const bool is_full = sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR);
  if (!is_full) unsent_.clear();  // drop the lines also if the manager is gone
}

}  // namespace kuiper

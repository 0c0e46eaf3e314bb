// What the service manager that started the process is told, in the form of systemd (sd_notify(3)):
// datagrams to the socket that $NOTIFY_SOCKET names. Used on the thread of the network; never
// waits.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kuiper/base/clock.h"
#include "kuiper/base/status.h"
#include "kuiper/server/engine_loop.h"
#include "kuiper/server/http_server.h"
#include "kuiper/server/server_settings.h"

namespace kuiper {

// As $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID say.
ServiceSettings ServiceOfEnvironment();

class ServiceManager {
 public:
  // Tells nothing without a socket. `http` must outlive it.
  ServiceManager(HttpServer& http, const ServiceSettings& settings);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;

  // How much of the model is loaded, of 1. While it grows, starting may take longer.
  void OnLoading(double share);
  // From here on the watchdog hears of the engine's thread, as long as that takes its mail. The
  // loop must outlive what is told.
  void OnReady(EngineLoop& loop);
  // Answers have this long to end.
  void OnStopping(std::chrono::milliseconds timeout);
  void OnTick(int num_running, int num_waiting);

 private:
  // A line of the next datagram, in place of an older one of this name. What cannot be sent now is
  // sent at the next tick.
  void Add(const std::string& name, const std::string& value);
  void Flush();
  void AskEngine();

  HttpServer& http_;
  const std::chrono::microseconds watchdog_;
  int fd_ = -1;  // connected
  EngineLoop* loop_ = nullptr;
  std::string state_ = "loading";
  std::string status_;  // what was told last
  std::map<std::string, std::string> unsent_;
  Clock::time_point told_;       // when the status was
  Clock::time_point next_sign_;  // of life
  bool is_asked_ = false;        // the engine has not answered yet
  int percent_ = -1;
};

}  // namespace kuiper

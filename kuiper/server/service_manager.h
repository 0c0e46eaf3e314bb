// Reports the server's state to the service manager in systemd's format (sd_notify(3)): datagrams
// to the socket that $NOTIFY_SOCKET names. Used on the network thread; never blocks.
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

// Reads $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID.
ServiceSettings ServiceOfEnvironment();

class ServiceManager {
 public:
  // Without a socket, sends nothing. `http` must outlive this object.
  ServiceManager(HttpServer& http, const ServiceSettings& settings);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;

  // Reports the loaded share of the model, in [0, 1]. Progress extends the start timeout.
  void OnLoading(double share);
  // Starts watchdog messages, which are sent only while the engine thread reads its queue. `loop`
  // must outlive this object.
  void OnReady(EngineLoop& loop);
  // Responses have `timeout` to end.
  void OnStopping(std::chrono::milliseconds timeout);
  void OnTick(int num_running, int num_waiting);

 private:
  // Sets a line of the next datagram; replaces an unsent line of this name. Lines that cannot be
  // sent now are sent at the next tick.
  void Add(const std::string& name, const std::string& value);
  void Flush();
  void AskEngine();

  HttpServer& http_;
  const std::chrono::microseconds watchdog_;
  int fd_ = -1;  // connected socket, or -1
  EngineLoop* loop_ = nullptr;
  std::string state_ = "loading";
  std::string status_;  // the last status sent
  std::map<std::string, std::string> unsent_;
  Clock::time_point status_sent_at_;  // when status_ was sent
  Clock::time_point next_sign_;       // when to check the engine thread next
  bool waits_for_engine_ = false;     // the engine thread has not replied yet
  int percent_ = -1;
};

}  // namespace kuiper

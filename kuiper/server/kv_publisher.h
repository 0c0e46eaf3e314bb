// Publishes prefix cache events over ZeroMQ in vLLM's framing: topic, 8-byte sequence number,
// batch. A second socket replays messages that subscribers missed. Needs libzmq at build time.
#pragma once

#include <memory>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/kv/prefix_event.h"
#include "kuiper/server/kv_event_batch.h"

namespace kuiper {

struct KvPublisherSettings {
  // Like "tcp://*:5557". Bound if it contains "*" or "::", or is ipc:// or inproc://; otherwise
  // connected. A leading "@" forces bind, ">" forces connect. "" = publish nothing.
  std::string endpoint;
  std::string replay_endpoint;  // always bound; "" = no replay
  std::string topic;
  KvEventFormat form = KvEventFormat::kMap;
  size_t max_pending = 1 << 17;  // maximum unsent events; further ones are dropped
};

class KvPublisher {
 public:
  // Sends the pending events.
  virtual ~KvPublisher() = default;
  // Returns an observer for the engine's configuration. It does not wait for the network. The
  // publisher must outlive the engine.
  virtual PrefixObserver observer() = 0;
};

// kInvalidArgument if an endpoint is unusable or the program was built without libzmq.
StatusOr<std::unique_ptr<KvPublisher>> StartKvPublisher(const KvPublisherSettings& settings);

}  // namespace kuiper

// Tells events of the prefix cache to whoever subscribes, over ZeroMQ and in vLLM's framing: topic,
// number of the message in 8 bytes, batch. A socket of its own sends again what somebody missed.
// Needs libzmq at build time.
#pragma once

#include <memory>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/kv/prefix_event.h"
#include "kuiper/server/kv_event_batch.h"

namespace kuiper {

struct KvPublisherSettings {
  // "tcp://*:5557". It is bound when it has a "*" or "::", or is ipc:// or inproc://, and connected
  // otherwise; "@" or ">" before it says which. "": nobody is told.
  std::string endpoint;
  std::string replay_endpoint;  // always bound; "": nothing is sent again
  std::string topic;
  KvEventForm form = KvEventForm::kMap;
  size_t max_pending = 1 << 17;  // events that wait to be sent; what comes beyond is lost
};

class KvPublisher {
 public:
  // Sends what it still has.
  virtual ~KvPublisher() = default;
  // For the engine's configuration; takes an event without waiting for the network. The publisher
  // must outlive the engine.
  virtual PrefixObserver observer() = 0;
};

// kInvalidArgument: an endpoint cannot be used, or the program was built without libzmq.
StatusOr<std::unique_ptr<KvPublisher>> StartKvPublisher(const KvPublisherSettings& settings);

}  // namespace kuiper

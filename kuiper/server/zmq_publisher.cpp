#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kuiper/server/kv_publisher.h"

namespace kuiper {
namespace {

constexpr size_t kMaxKept = 10000;  // batches kept for replay
constexpr size_t kMaxKeptBytes = 64 << 20;
// Maximum unsent messages per slow peer: enough for a whole replay and its end. More are dropped.
constexpr int kMaxUnsent = 2 * kMaxKept;
constexpr int64_t kMaxRequestBytes = 1024;  // size limit of a replay request
constexpr int kLingerMs = 500;
constexpr uint64_t kEndOfReplay = ~uint64_t{0};
// Events within this time after a batch's first event join the batch.
constexpr std::chrono::milliseconds kGather{2};

std::string BigEndian(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

uint64_t FromBigEndian(const std::string& bytes) {
  uint64_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<uint8_t>(c);
  return number;
}

double SecondsSince1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Sends a multipart message; it is dropped if the peer's queue is full.
void SendParts(void* socket, std::initializer_list<const std::string*> parts) {
  size_t left = parts.size();
  for (const std::string* part : parts) {
    const int more = --left > 0 ? ZMQ_SNDMORE : 0;
    if (zmq_send(socket, part->data(), part->size(), more | ZMQ_DONTWAIT) < 0) return;
  }
}

std::vector<std::string> ReceiveParts(void* socket) {
  std::vector<std::string> parts;
  int more = 1;
  while (more != 0) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) return {};
    parts.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    more = zmq_msg_more(&message);
    zmq_msg_close(&message);
  }
  return parts;
}

class ZmqPublisher final : public KvPublisher {
 public:
  explicit ZmqPublisher(const KvPublisherSettings& settings)
      : settings_(settings),
        context_(zmq_ctx_new()),
        publish_(zmq_socket(context_, ZMQ_PUB)),
        replay_(zmq_socket(context_, ZMQ_ROUTER)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const int yes = 1;
    for (void* socket : {publish_, replay_}) {
      zmq_setsockopt(socket, ZMQ_LINGER, &kLingerMs, sizeof(kLingerMs));
      zmq_setsockopt(socket, ZMQ_SNDHWM, &kMaxUnsent, sizeof(kMaxUnsent));
      zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &kMaxRequestBytes, sizeof(kMaxRequestBytes));
      zmq_setsockopt(socket, ZMQ_IPV6, &yes, sizeof(yes));
    }
  }
  ~ZmqPublisher() override {
    if (thread_.joinable()) {
      is_over_ = true;
      Wake();
      thread_.join();
    }
    zmq_close(publish_);
    zmq_close(replay_);
    zmq_ctx_term(context_);
    close(wake_);
  }

  Status Start() {
    if (publish_ == nullptr || replay_ == nullptr || wake_ < 0) {
      return Status(StatusCode::kResourceExhausted, "no file descriptor is left for KV events");
    }
    KU_RETURN_IF_ERROR(Open(publish_, "kv_events_endpoint", settings_.endpoint));
    if (!settings_.replay_endpoint.empty()) {
      KU_RETURN_IF_ERROR(
          Open(replay_, "kv_events_replay_endpoint", "@" + settings_.replay_endpoint));
    }
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }

  PrefixObserver observer() override {
    return [this](PrefixEvent event) { Take(std::move(event)); };
  }

 private:
  static Status Open(void* socket, const char* name, const std::string& endpoint) {
    const bool is_marked = endpoint[0] == '@' || endpoint[0] == '>';
    const std::string address = endpoint.substr(is_marked ? 1 : 0);
    const auto has = [&](const char* part) { return address.find(part) != std::string::npos; };
    const bool binds = is_marked ? endpoint[0] == '@'
                                 : has("*") || has("::") || address.starts_with("ipc://") ||
                                       address.starts_with("inproc://");
    const int failed =
        binds ? zmq_bind(socket, address.c_str()) : zmq_connect(socket, address.c_str());
    if (failed == 0) return OkStatus();
    return Status(StatusCode::kInvalidArgument,
                  Param(name) + ": cannot " + (binds ? "bind " : "connect to ") + address + ": " +
                      zmq_strerror(errno),
                  "endpoints are like tcp://*:5557");
  }

  // Called on the engine thread.
  void Take(PrefixEvent event) {
    {
      const std::lock_guard lock(mutex_);
      if (pending_.size() >= settings_.max_pending) {
        has_lost_ = true;
        return;
      }
      pending_.push_back(std::move(event));
      if (pending_.size() > 1) return;
    }
    Wake();
  }

  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  }

  void Run() {
    while (!is_over_) {
      zmq_pollitem_t items[] = {{nullptr, wake_, ZMQ_POLLIN, 0}, {replay_, -1, ZMQ_POLLIN, 0}};
      zmq_poll(items, 2, -1);
      if ((items[0].revents & ZMQ_POLLIN) != 0) {
        uint64_t count;
        [[maybe_unused]] const ssize_t taken = read(wake_, &count, sizeof(count));
        std::this_thread::sleep_for(kGather);
        Publish();
      }
      if ((items[1].revents & ZMQ_POLLIN) != 0) Replay(ReceiveParts(replay_));
    }
    Publish();
  }

  void Publish() {
    std::vector<PrefixEvent> events;
    bool has_lost = false;
    {
      const std::lock_guard lock(mutex_);
      events.swap(pending_);
      has_lost = std::exchange(has_lost_, false);
    }
    if (events.empty()) return;
    kept_.emplace_back(next_number_++, KvEventBatch(events, SecondsSince1970(), settings_.form));
    // Events were dropped: skip a sequence number so that subscribers see a gap.
    if (has_lost) ++next_number_;
    kept_bytes_ += kept_.back().second.size();
    while (kept_.size() > kMaxKept || (kept_bytes_ > kMaxKeptBytes && kept_.size() > 1)) {
      kept_bytes_ -= kept_.front().second.size();
      kept_.pop_front();
    }
    const std::string number = BigEndian(kept_.back().first);
    SendParts(publish_, {&settings_.topic, &number, &kept_.back().second});
  }

  // A request has three parts: the client's name, an empty part, the first sequence number wanted.
  void Replay(const std::vector<std::string>& request) {
    if (request.size() != 3 || request[2].size() != sizeof(uint64_t)) return;
    const uint64_t first = FromBigEndian(request[2]);
    const std::string nothing;
    for (const auto& [number, batch] : kept_) {
      if (number < first) continue;
      const std::string bytes = BigEndian(number);
      SendParts(replay_, {&request[0], &nothing, &bytes, &batch});
    }
    const std::string end = BigEndian(kEndOfReplay);
    SendParts(replay_, {&request[0], &nothing, &end, &nothing});
  }

  const KvPublisherSettings settings_;
  void* const context_;
  void* const publish_;
  void* const replay_;
  const int wake_;
  std::mutex mutex_;
  std::vector<PrefixEvent> pending_;
  bool has_lost_ = false;
  std::atomic<bool> is_over_ = false;
  // Used only by the publisher's thread.
  uint64_t next_number_ = 0;
  std::deque<std::pair<uint64_t, std::string>> kept_;
  size_t kept_bytes_ = 0;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<KvPublisher>> StartKvPublisher(const KvPublisherSettings& settings) {
  auto publisher = std::make_unique<ZmqPublisher>(settings);
  KU_RETURN_IF_ERROR(publisher->Start());
  return std::unique_ptr<KvPublisher>(std::move(publisher));
}

}  // namespace kuiper

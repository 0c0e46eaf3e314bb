#include "demo/serve_flags.h"

#include <utility>

namespace kuiper::demo {
namespace {

constexpr double kYear = 366.0 * 24 * 3600;  // in seconds

Flag Text(const char* name, const char* value_name, Variable variable, const char* help) {
  return MakeFlag(name, std::move(variable), help, {}, value_name);
}

std::vector<Flag> FlagsOfKvEvents(KvPublisherSettings& s) {
  return {
      Text("kv-events-endpoint", "ENDPOINT", &s.endpoint,
           "publish changes of the prefix cache, e.g. at tcp://*:5557 (ZeroMQ, vLLM's format)"),
      Text("kv-events-replay-endpoint", "ENDPOINT", &s.replay_endpoint,
           "resend missed events to subscribers there, e.g. at tcp://*:5558"),
      Text("kv-events-topic", "TEXT", &s.topic, "the topic of these messages"),
      MakeFlag("kv-events-format",
               OneOf(&s.form, {{"map", KvEventFormat::kMap}, {"array", KvEventFormat::kArray}}),
               "their events: map = as vLLM from 0.23 on, array = as before"),
  };
}

}  // namespace

std::vector<Flag> FlagsOfServing(ServeFlags& s) {
  using enum ReasoningField;
  std::vector<Flag> flags = {
      Text("config", "FILE", &s.config_file,
           "one flag per line, NAME = VALUE; the command line takes precedence"),
      Text("host", "NAME", &s.host, "address to listen on; 0.0.0.0 = all of the machine"),
      MakeFlag("port", &s.port, "port to listen on, 0 = a free one", {0, 65535}),
      Text("unix-socket", "PATH", &s.unix_socket, "listen there and on no port"),
      Text("port-file", "PATH", &s.port_file, "write the port to this file"),
      Text("served-model-name", "NAME", &s.names,
           "what clients call the model; may be repeated (default: its directory's name)"),
      Text("api-key-file", "PATH", &s.api_key_file,
           "keys that clients must have, one per line (default: KUIPER_API_KEY, or none)"),
      Text("cors-origin", "ORIGIN", &s.cors_origin,
           "pages of this origin may ask, * = of all (default: the server's own)"),
      MakeFlag("max-connections", &s.max_connections, "clients at the same time", {1, 1 << 20}),
      MakeFlag("max-queue", &s.max_queue, "answers that may wait; more are refused with status 429",
               {0, 1 << 20}),
      MakeFlag("max-body", &s.max_body, "size of a request, e.g. 8M", {.min = 1024, .bytes = true}),
      MakeFlag("max-queue-memory", &s.max_queue_memory,
               "bodies and prompts of all requests that run and wait, and the same of bodies that "
               "arrive; more are refused with status 429",
               {.bytes = true}),
      MakeFlag("max-request-megapixels", &s.max_request_megapixels,
               "pictures of one request, as they are sent", {1, 1 << 20}),
      MakeFlag("max-decoding-megapixels", &s.max_decoding_megapixels,
               "pictures that are decoded at one time; others wait, and a larger one is refused",
               {1, 1 << 20}),
      MakeFlag(
          "max-picture-memory", &s.max_picture_memory,
          "scaled pictures of all requests that run and wait; more are refused with status 429",
          {.bytes = true}),
      MakeFlag("request-timeout", &s.request_timeout, "seconds a request may take, 0 = any",
               {0, kYear}),
      MakeFlag("drain-timeout", &s.drain_timeout, "seconds that answers have to end after SIGTERM",
               {0, kYear}),
      MakeFlag("max-output-tokens", &s.max_output_tokens,
               "tokens of an answer at most, 0 = the rest of the context"),
      MakeFlag("sleep-idle-seconds", &s.release_after,
               "empty the KV cache and release its memory after this idle time, 0 = never",
               {0, kYear}),
      MakeFlag("answer-memory", &s.answer_memory,
               "tokens of answers whose ids are kept for the next turns, 0 = none"),
      Text("metrics-prefix", "NAME", &s.metrics_prefix,
           "prefix of the names of /metrics; vllm for dashboards made for vLLM"),
      MakeFlag("reasoning-field",
               OneOf(&s.reasoning_field, {{"both", kBoth},
                                          {"reasoning_content", kReasoningContent},
                                          {"reasoning", kReasoning}}),
               "the field of a message that holds reasoning"),
  };
  for (Flag& flag : FlagsOfKvEvents(s.kv_events)) flags.push_back(std::move(flag));
  return flags;
}

}  // namespace kuiper::demo

#include <cstdio>
#include <memory>
#include <utility>

#include "kuiper/engine/engine.h"

// consumer MODEL: one greedy answer to a prompt of ids, through the public API only.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  kuiper::EngineConfig config;
  config.model_path = argv[1];
  config.need_tokenizer = false;  // ids in, ids out
  kuiper::StatusOr<std::unique_ptr<kuiper::Engine>> engine = kuiper::Engine::Create(config);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().message().c_str());
    return 1;
  }
  kuiper::Request request;
  request.prompt = {5, 6, 7};
  request.max_new_tokens = 4;
  request.ignore_eos = true;
  kuiper::StatusOr<kuiper::Completion> answer = engine.value()->Generate(std::move(request));
  if (!answer.ok() || answer.value().tokens.size() != 4) return 1;
  std::printf("%d tokens on %s\n", static_cast<int>(answer.value().tokens.size()),
              engine.value()->device_description().c_str());
  return 0;
}

// Asks a chat model several questions at once: generate MODEL QUESTION...
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kuiper/base/log.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/engine/engine.h"

using namespace kuiper;  // NOLINT(google-build-using-namespace): an example

Status Ask(const std::string& model, const std::vector<std::string>& questions) {
  EngineConfig config;
  config.model_path = model;
  config.max_num_seqs = 4;  // run together; further requests wait
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(config));
  KU_ASSIGN_OR_RETURN(const PromptTemplate chat_template, PromptTemplate::Of(*engine));
  std::map<int64_t, std::string> question_of;
  for (const std::string& question : questions) {
    Message message;
    message.text = question;
    KU_ASSIGN_OR_RETURN(const Request request,
                        MakeChatRequest(*engine->tokenizer(), chat_template, {message}));
    KU_ASSIGN_OR_RETURN(const int64_t id, engine->Add(request));
    question_of[id] = question;
  }
  while (engine->HasWork()) {
    for (const TokenEvent& event : engine->Step()) {  // one token of one request
      if (event.finish == FinishReason::kNone) continue;
      KU_ASSIGN_OR_RETURN(const Completion answer, engine->Take(event.request));
      KU_RETURN_IF_ERROR(answer.error);
      std::printf("%s -> %s\n", question_of[event.request].c_str(), answer.text.c_str());
    }
  }
  return OkStatus();
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL QUESTION...\n", argv[0]);
    return 2;
  }
  SetLogSink(
      [](LogSeverity, const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  const Status status = Ask(argv[1], {argv + 2, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

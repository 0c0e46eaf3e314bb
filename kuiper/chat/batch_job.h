// Answers the requests of one file into another: reads a little ahead of the engine, keeps it full,
// and writes an answer as soon as all answers before it are written; a run that was ended goes on
// behind its last whole line. For programs, which show how far it is; knows no flags.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/append_file.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/batch_input.h"
#include "kuiper/chat/batch_line.h"
#include "kuiper/chat/chat_request.h"
#include "kuiper/chat/chat_response.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/engine/engine.h"

namespace kuiper {

// What an earlier run left in the output.
struct BatchResumption {
  int64_t num_answers = 0;
  int64_t num_failed = 0;  // of them
};

// Reads past the requests whose answers are in `output`, which messages call `name`, and cuts off
// what is torn behind them. kInput where the output is not that of an earlier run of this model
// and these settings (Responder::fingerprint).
StatusOr<BatchResumption> ResumeBatch(BatchInput& input, AppendFile& output,
                                      const std::string& name, const std::string& fingerprint);

// Of this run.
struct BatchCounts {
  int64_t num_done = 0;  // requests of the input, those of an earlier run among them
  int64_t num_written = 0;
  int64_t num_failed = 0;
  int64_t num_prompt_tokens = 0, num_tokens = 0;
};

// What a batch is told and asks of its program. Functions may not be empty.
struct BatchHost {
  Request defaults;     // of what a line leaves out
  Responder responder;  // who answers
  // How parameters are named in errors of flat lines, and of those with a body.
  Speller flat_names, body_names;
  // The prompt of a chat.
  std::function<StatusOr<Prompt>(const ChatRequest& request)> build_prompt;
  // An answer has ended; `request` is the engine's number.
  std::function<void(int64_t request, int choice, const Completion& answer,
                     const std::optional<std::string>& custom_id)>
      on_answer;
  std::function<bool()> is_interrupted;  // ends the run before the next step
  std::function<void(const BatchCounts& counts)> on_step;
};

class BatchJob {
 public:
  // Behind ResumeBatch. All must outlive the job.
  BatchJob(BatchInput& input, AppendFile& output, Engine& engine, const BatchHost& host)
      : input_(input), output_(output), engine_(engine), host_(host) {}

  // Until all requests are answered, the input ends with a mistake (BatchInput::status), or the
  // host is interrupted. Errors of single requests are answers; kInternal when one cannot be
  // written.
  Status Run();
  const BatchCounts& counts() const { return counts_; }

 private:
  struct Active {
    BatchLine line;
    bool is_chat;
    int num_running;                  // choices that have not ended
    std::vector<Completion> choices;  // by their number
  };

  // Adds requests while there is room for them.
  void Fill();
  void Start(const BatchInput::Item& item);
  StatusOr<Prompt> BuildPrompt(const ChatRequest& request);
  void FinishChoice(int64_t id, int choice);
  void Fail(const BatchLine& line, const Status& status);
  void Store(const BatchLine& line, std::string text);
  Status WriteReady();

  BatchInput& input_;
  AppendFile& output_;
  Engine& engine_;
  const BatchHost& host_;

  bool at_end_ = false;
  std::map<int64_t, Active> active_;  // by the engine's number
  // Lines behind the last one written; empty while the request runs.
  std::deque<std::string> lines_;
  const int64_t num_kept_ = input_.num_read();  // answers of an earlier run
  BatchCounts counts_;
};

}  // namespace kuiper

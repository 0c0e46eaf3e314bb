// Answers the requests of one file into another, in their order. Reads a little ahead to keep the
// engine full, and writes an answer once all earlier ones are written. An interrupted run can be
// resumed after its last complete line. Independent of flags; programs show the progress.
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

// The contents of the output file from an earlier run.
struct BatchResumption {
  int64_t num_answers = 0;
  int64_t num_failed = 0;  // failed ones among num_answers
};

// Skips the requests whose answers are in `output`, and removes a partial line after them. Messages
// call the output `name`. kInput if the output is not from an earlier run with the same model and
// settings (Responder::fingerprint).
StatusOr<BatchResumption> ResumeBatch(BatchInput& input, AppendFile& output,
                                      const std::string& name, const std::string& fingerprint);

// The counts of this run.
struct BatchCounts {
  int64_t num_done = 0;  // includes the requests answered by an earlier run
  int64_t num_written = 0;
  int64_t num_failed = 0;
  int64_t num_prompt_tokens = 0, num_tokens = 0;
};

// Settings and callbacks that the program provides to a batch. No function may be empty.
struct BatchHost {
  Request defaults;     // values of fields that a line leaves out
  Responder responder;  // written into the answers
  // Spell parameters in errors about flat lines and about lines with a body.
  Speller flat_names, body_names;
  // Builds the prompt of a chat.
  std::function<StatusOr<Prompt>(const ChatRequest& request)> build_prompt;
  // Called when a choice has ended; `request` is the engine's request id.
  std::function<void(int64_t request, int choice, const Completion& answer,
                     const std::optional<std::string>& custom_id)>
      on_answer;
  std::function<bool()> is_interrupted;  // if true, the run ends before the next step
  std::function<void(const BatchCounts& counts)> on_step;
};

class BatchJob {
 public:
  // Construct after ResumeBatch. All arguments must outlive the job.
  BatchJob(BatchInput& input, AppendFile& output, Engine& engine, const BatchHost& host)
      : input_(input), output_(output), engine_(engine), host_(host) {}

  // Runs until all requests are answered, the input fails (BatchInput::status), or the host is
  // interrupted. An error of a single request is written as its answer. kInternal if an answer
  // cannot be written.
  Status Run();
  const BatchCounts& counts() const { return counts_; }

 private:
  struct Active {
    BatchLine line;
    bool is_chat;
    int num_running;                  // choices that have not ended
    std::vector<Completion> choices;  // by choice index
  };

  // Adds requests to the engine while there is room.
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
  std::map<int64_t, Active> active_;  // by the engine's request id
  // The lines after the last one written; a line is "" while its request runs.
  std::deque<std::string> lines_;
  const int64_t num_kept_ = input_.num_read();  // answers of an earlier run
  BatchCounts counts_;
};

}  // namespace kuiper

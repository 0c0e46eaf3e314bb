#include "kuiper/chat/batch_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "test/temp_file.h"

namespace kuiper {
namespace {

using test::TempFile;

constexpr char kRequests[] =
    "{\"custom_id\": \"a\", \"prompt\": \"A\"}\n"
    "{\"custom_id\": \"b\", \"prompt\": \"B\"}\n"
    "{\"custom_id\": \"c\", \"prompt\": \"C\"}\n";

// Answer lines of a run with fingerprint "fp": a normal one, and an error.
std::string Answer(int64_t number, const std::string& custom_id) {
  BatchLine line;
  line.number = number;
  line.custom_id = custom_id;
  line.is_flat = true;
  Completion completion;
  completion.finish = FinishReason::kStop;
  completion.tokens = {1};
  return BatchAnswerLine(line, false, {"m", "fp"}, {completion});
}
std::string Error(int64_t number, const std::string& custom_id) {
  BatchLine line;
  line.number = number;
  line.custom_id = custom_id;
  line.is_flat = true;
  return BatchErrorLine(line, Status(StatusCode::kInput, "no"), BareName);
}

// The result of resuming a run whose output contains `text`.
struct Resumed {
  explicit Resumed(const std::string& text)
      : requests(kRequests),
        answers(text),
        input(BatchInput::Open(requests.path()).value()),
        output(AppendFile::Open(answers.path()).value()),
        found(ResumeBatch(*input, *output, "answers", "fp")) {}

  TempFile requests, answers;
  std::unique_ptr<BatchInput> input;
  std::unique_ptr<AppendFile> output;
  StatusOr<BatchResumption> found;
};

TEST(ResumeBatch, GoesOnBehindTheLastWholeLine) {
  const Resumed fresh("");
  ASSERT_TRUE(fresh.found.ok());
  EXPECT_EQ(fresh.found->num_answers, 0);
  EXPECT_EQ(fresh.input->num_read(), 0);

  const std::string torn = Answer(3, "c").substr(0, 25);
  const Resumed run(Answer(1, "a") + Error(2, "b") + torn);
  ASSERT_TRUE(run.found.ok()) << run.found.status().message();
  EXPECT_EQ(run.found->num_answers, 2);
  EXPECT_EQ(run.found->num_failed, 1);
  EXPECT_EQ(run.input->num_read(), 2);
  EXPECT_EQ(run.input->Next()->line.custom_id, "c");
  std::ostringstream left;
  left << std::ifstream(run.answers.path()).rdbuf();
  EXPECT_EQ(left.str(), Answer(1, "a") + Error(2, "b"));
}

TEST(ResumeBatch, LeavesAloneWhatIsNotItsOwn) {
  const Resumed other(Answer(1, "a") + Answer(2, "z"));
  EXPECT_EQ(other.found.status().message(),
            "answers, line 2 is not the answer to the request in that place of the input");
  EXPECT_EQ(other.found.status().hint(),
            "choose another output, or remove this one to begin again");
  const Resumed too_many(Answer(1, "a") + Answer(2, "b") + Answer(3, "c") + Answer(4, "d"));
  EXPECT_EQ(too_many.found.status().code(), StatusCode::kInput);
  const Resumed torn("something else");
  EXPECT_EQ(torn.found.status().code(), StatusCode::kInput);

  std::string settings = Answer(1, "a");
  settings.replace(settings.find("\"fp\""), 4, "\"fq\"");
  EXPECT_EQ(Resumed(settings).found.status().message(),
            "answers, line 1 is the answer of another model or of other settings");
}

}  // namespace
}  // namespace kuiper

// kuiper quantize: the arguments, the calibration text, and the progress output.
#include <algorithm>
#include <string>

#include "demo/tasks.h"
#include "kuiper/base/clock.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/io/text_input.h"
#include "kuiper/quant/quantize_model.h"
#include "kuiper/report/number_text.h"

namespace kuiper::demo {
namespace {

// Returns the calibration text as ids; empty for --method rtn.
StatusOr<std::vector<int32_t>> ReadText(const Options& options) {
  const QuantizeFlags& flags = options.quantize;
  if (!flags.activation_aware) return std::vector<int32_t>();
  std::string text = kCalibrationText;
  if (!flags.text_file.empty()) {
    KU_ASSIGN_OR_RETURN(text, ReadTextInput(flags.text_file, "text file"));
  }
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                      Engine::ReadTokenizer(options.engine));
  std::vector<int32_t> ids = EncodeRaw(*tokenizer, text);
  if (static_cast<int>(ids.size()) > flags.limit) ids.resize(static_cast<size_t>(flags.limit));
  return ids;
}

std::string LayerLine(const LayerReport& report, int num_layers) {
  std::string line =
      Format("layer %d of %d: error %.3f%%", report.layer + 1, num_layers, 100 * report.error);
  if (report.matrices.empty()) return line + ", kept from before";
  const auto worst =
      std::max_element(report.matrices.begin(), report.matrices.end(),
                       [](const auto& a, const auto& b) { return a.error < b.error; });
  return line + ", largest " + worst->name + Format(" %.3f%%", 100 * worst->error);
}

}  // namespace

StatusOr<int> RunQuantize(ProgramRun& run) {
  const Options& options = run.options;
  const QuantizeFlags& flags = options.quantize;
  Console& console = run.console;
  QuantizeOptions quantize;
  quantize.scheme = flags.scheme;
  quantize.num_threads = options.engine.ops.num_threads;
  KU_ASSIGN_OR_RETURN(quantize.text, ReadText(options));
  const Clock::time_point begin = Clock::now();
  quantize.progress = [&](double done) {
    console.Progress([&] {
      return ProgressBar(static_cast<int64_t>(1000 * done), 1000) + Format(" %.0f%%", 100 * done) +
             (done > 0.01 ? TimeLeftText(SecondsSince(begin) * (1 - done) / done) : "");
    });
  };
  double errors = 0;
  int num_layers = 0;
  quantize.on_layer = [&](const LayerReport& report, int layers) {
    console.Info(LayerLine(report, layers));
    errors += report.error;
    num_layers = layers;
  };
  const StatusOr<QuantizeResult> result =
      QuantizeModel(options.engine.model_path, flags.output, quantize);
  console.EndProgress();
  KU_RETURN_IF_ERROR(result.status());
  console.Answer(flags.output + ": " + std::to_string(flags.scheme.bits) + " bits in groups of " +
                 std::to_string(result->group_size) + ", " +
                 HumanBytes(static_cast<size_t>(result->written_bytes)) + " of " +
                 HumanBytes(static_cast<size_t>(result->source_bytes)) +
                 Format(", mean error %.3f%%\n", 100 * errors / num_layers));
  return kExitOk;
}

}  // namespace kuiper::demo

#include "demo/flags.h"
#include "demo/program.h"

namespace kuiper::demo {
namespace {

constexpr char kAfterTextFlags[] = R"(
Chat (-i): /help lists its commands. On a terminal it samples as the model asks,
up to the whole context; Ctrl-C stops an answer, clears a line, twice ends it.

Input: PROMPT, --prompt, --file or --messages, else all of standard input is one
user message; if that is a terminal or empty, a default question. With -i and
piped input, one line is one turn.

Output: the answer on stdout, everything else on stderr.
)";

constexpr char kAfterBatchFlags[] = R"(
Input: a line is {"custom_id": ..., "messages": [...], "max_tokens": ..., ...},
or has these in a "body", as for OpenAI's batches; with "prompt" a text is
completed without the chat template. Options are the defaults of what a line
leaves out.

Output: one line per request in the order of the requests; a line that cannot be
answered gets an error there. Started again with the same files, the program
goes on behind the last whole line.
)";

constexpr char kAfterEvalFlags[] = R"(
Output: nats per token, perplexity and its standard error on stdout. Of each
further configuration (--against) also, in comparison with the first one: the
share of positions with the same most likely token, the mean change of the log
probability of the text's tokens, and the mean Kullback-Leibler divergence.
Each token is predicted once, in the first window that has it and a token before
it. Ctrl-C prints what there is so far.
)";

constexpr char kAfterServeFlags[] = R"(
POST /v1/chat/completions and /v1/completions answer as OpenAI's interface does;
docs/server.md has the others. Options of sampling are the defaults of what a
body leaves out. SIGTERM or Ctrl-C: no new requests, and the end when those that
run have ended; a second signal ends at once.
)";

constexpr char kAfterQuantizeFlags[] = R"(
All linear layers of the text model but the head become codes; the rest, with
what reads pictures, is copied. A run that was ended, even by a kill, goes on
where it was when it is started again.

Output: one line on stdout; stderr has the error of each layer: with --method
awq that of its outputs on the text, else that of its weights.
)";

constexpr char kAfterFlags[] = R"(
Exit codes:
  0  answer produced                      5  prompt or picture: missing, damaged
  1  unexpected failure                   6  prompt longer than the context
  2  usage                                7  out of memory, KV cache full
  3  model file, or no model of this kind 8  device not available
  4  tokenizer                            9  --verify-paged found a difference
  129, 130, 141, 143  ended by SIGHUP, SIGINT, SIGPIPE, SIGTERM
)";

constexpr char kGuarantees[] = R"(
Guarantees (on one machine, one device, one --attention kind, one dtype):
  1. paged == contiguous: the same token ids and the same logit bits, for every
     page size
  2. recorded decode step (--cuda-graph) == eager: the same bits
  3. prefix-cache hit == cold run, chunked == whole prefill: the same bits
  4. a request in a batch == the same request alone: the same bits
  5. preempted (computed again, or swapped) == never preempted: the same bits
  On a GPU with --deterministic on, 3 holds for earlier answers in a prompt up
  to rounding only.
Not guaranteed: equality across GPU models, --attention kinds, dtypes and CPU
instruction sets, and to the bit with Hugging Face.
)";

constexpr char kModelAndTokenizer[] =
    "MODEL is a Hugging Face directory, a .safetensors file or a packed .bin;\n"
    "TOKENIZER is a tokenizer.json or its directory (default: the model's).\n";
constexpr char kPrompt[] =
    "PROMPT is the same as --prompt: an argument that names no file or folder and\n"
    "has white space in it";
constexpr char kModelAndOut[] =
    "MODEL is a Hugging Face directory; OUT is the directory that is made.\n";

// The parts of the help that differ between the programs.
struct HelpParts {
  const char* needed;  // follows MODEL, where most programs have [TOKENIZER]
  const char* what;
  const char* after_flags;
  const char* families = " (Qwen, Llama, Mistral).";
};

HelpParts PartsOf(FlagPrograms program) {
  using enum FlagPrograms;
  constexpr const char* kEvery = " (Qwen, Qwen3-VL, Llama, Mistral).";
  constexpr const char* kFiles = "[TOKENIZER] --input FILE --output FILE";
  constexpr const char* kOptional = "[TOKENIZER]";
  constexpr const char* kWithPrompt = "[TOKENIZER] [PROMPT]";
  if (program == kBatch) return {kFiles, "Answers many requests at once", kAfterBatchFlags, kEvery};
  if (program == kServe) return {kOptional, "Answers over HTTP", kAfterServeFlags, kEvery};
  if (program == kQuantize) return {"OUT", "Quantizes a model", kAfterQuantizeFlags, kEvery};
  if (program == kVision)
    return {kWithPrompt, "Answers about pictures and videos", kAfterTextFlags, " (Qwen3-VL)."};
  if (program == kAnyModel) return {kWithPrompt, "Runs a model", kAfterTextFlags, kEvery};
  if (program != kEval) return {kWithPrompt, "Runs a text model", kAfterTextFlags};
  return {"[TOKENIZER] --text FILE", "Computes how well a text model predicts a text",
          kAfterEvalFlags};
}

}  // namespace

std::string VersionText(std::string_view program) {
  const bool is_kuiper = program == "kuiper" || program.starts_with("kuiper ");
  return (is_kuiper ? "" : std::string(program) + ", ") + Engine::Version() + "\n";
}

std::string HelpText(const Program& program, bool all) {
  const HelpParts parts = PartsOf(program.flags);
  std::string text = std::string("usage: ") + program.name + " MODEL " + parts.needed +
                     " [options]\n\n" + parts.what + parts.families + "\n" +
                     (program.flags == FlagPrograms::kQuantize ? kModelAndOut : kModelAndTokenizer);
  if (Contains(FlagPrograms::kPrompts, program.flags)) {
    text += kPrompt;
    text += program.flags == FlagPrograms::kAnyModel
                ? ", or neither a / nor the ending .json or .model.\n"
                : ".\n";
  }
  text += "Options may be abbreviated and stand anywhere; --no-NAME switches off.\n";
  Options defaults;
  text += FlagsHelp(FlagsOf(program.flags, defaults), all);
  text += std::string(parts.after_flags) + kAfterFlags;
  return program.flags == FlagPrograms::kQuantize ? text : text + kGuarantees;
}

}  // namespace kuiper::demo

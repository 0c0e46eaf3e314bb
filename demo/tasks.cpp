#include "demo/tasks.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "demo/flags.h"
#include "demo/prompt_source.h"
#include "kuiper/base/clock.h"
#include "kuiper/base/fatal.h"
#include "kuiper/base/log.h"
#include "kuiper/chat/conversation_file.h"
#include "kuiper/chat/session_file.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/report/number_text.h"
#include "kuiper/report/statistics.h"

namespace kuiper::demo {

EngineConfig ForPictures(const ProgramRun& run, EngineConfig config) {
  config.image_max_tokens = 0;
  if (run.pictures == nullptr) return config;
  int64_t tokens = run.pictures->largest_frame();
  // More images may come. If there are none yet, a dry run shows what one could take.
  const Task task = run.options.task;
  const bool goes_on = task == Task::kChat || task == Task::kBatch || task == Task::kServe;
  if (goes_on || (task == Task::kDryRun && tokens == 0)) {
    tokens = std::max(tokens, run.pictures->processor().max_image_tokens());
  }
  config.image_max_tokens = tokens;
  return config;
}

namespace {

// Encoding callback: shows progress after one second and stops on Ctrl-C.
std::function<bool(int64_t, double)> ShowEncoding(Console& console) {
  return [&console, begin = Clock::now()](int64_t, double done) mutable {
    if (done == 0) begin = Clock::now();
    const bool goes_on = !InterruptScope::interrupted();
    if (done == 1 || !goes_on) {
      console.EndProgress();
    } else if (SecondsSince(begin) >= 1) {
      console.Progress([done] { return Format("encoding a picture: %.0f %%", 100 * done); });
    }
    return goes_on;
  };
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> LoadEngine(ProgramRun& run, const EngineConfig& wanted) {
  EngineConfig config = ForPictures(run, wanted);
  const Clock::time_point begin = Clock::now();
  config.progress = [&](size_t done, size_t total) {
    if (wanted.progress) wanted.progress(done, total);
    if (total == 0 || SecondsSince(begin) < 1) return;
    run.console.Progress(
        [&] { return "loading " + HumanBytes(done) + " of " + HumanBytes(total); });
  };
  if (!run.model.has_value()) {
    KU_ASSIGN_OR_RETURN(run.model, OpenModel(config.model_path));
  }
  if (run.watch != nullptr) config.on_kv_event = run.watch->observer();
  if (!config.on_encoding) config.on_encoding = ShowEncoding(run.console);
  StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(config, *std::exchange(run.model, std::nullopt), std::move(run.tokenizer));
  run.console.EndProgress();
  if (!engine.ok()) return engine;
  const Engine& e = **engine;
  LogInfo(Format("loaded %s (%s) in %.0f ms, context %d tokens",
                 ModelName(config.model_path).c_str(), e.model_config().architecture.c_str(),
                 e.load_ms(), e.config().max_context));
  LogInfo("device: " + e.device_description());
  for (const std::string& line : KvCacheLines(e)) run.console.Detail(line);
  if (e.config().prefix_cache) {
    const std::string tokens = std::to_string(e.config().prefix_cache_tokens);
    LogInfo("prefix cache: keeps up to " + tokens + " tokens");
    if (run.options.args.given("prefix-cache-size") &&
        run.options.engine.prefix_cache_tokens > e.config().prefix_cache_tokens) {
      run.console.Note("--prefix-cache-size clamped to " + tokens + ", the size of the KV cache");
    }
  }
  if (run.watch != nullptr) run.watch->Begin(e.kv_stats());
  if (e.memory_plan().swap_bytes > 0) {
    run.console.Note(
        "the swap space is the same memory as the KV cache's here: swapping frees blocks of the KV "
        "cache for others, and no memory of the machine");
  }
  return engine;
}

void EndIfFilesChanged(const Engine& engine) {
  const std::string file = engine.ChangedFile();
  if (file.empty()) return;
  Fatal(kExitLostFile, file +
                           " was written to while it was in use, and answers since then may be "
                           "wrong; start again when the file is whole");
}

Status ReadChatTemplate(ProgramRun& run) {
  TemplateFiles files;
  if (!run.options.raw) {
    KU_ASSIGN_OR_RETURN(files, Engine::ReadTemplate(run.options.engine));
  }
  KU_ASSIGN_OR_RETURN(run.chat_template, PromptTemplate::Make(std::move(files), run.model_type));
  if (run.options.raw) return OkStatus();
  const TemplateFacts& facts = run.chat_template->facts();
  for (const std::string& line : Describe(facts, run.chat_template->name())) {
    run.console.Line(LogLevel::kDebug, line);
  }
  if (run.options.keep_thinking && facts.thinking.has_value() && facts.before_reasoning.empty()) {
    run.console.Note("--history-thinking has no effect: the model's chat template decides");
  }
  return run.tokenizer == nullptr ? OkStatus() : run.chat_template->CheckTokens(*run.tokenizer);
}

TemplateOptions ChatTemplateOf(const ProgramRun& run, const PromptInput& input) {
  const Options& options = run.options;
  TemplateOptions chat;
  if (run.chat_template.has_value()) chat.chat_template = &*run.chat_template;
  chat.pictures = run.pictures.get();
  chat.now = options.now;
  chat.think = options.think;
  chat.keep_thinking = options.keep_thinking;
  return WithMessages(std::move(chat), input.messages);
}

StatusOr<std::vector<ContentPart>> ReadMedia(const ProgramRun& run, const PromptInput& input) {
  std::vector<ContentPart> media = input.media;
  for (ContentPart& part : media) {
    const bool is_video = part.kind == ContentPart::Kind::kVideo;
    if (run.pictures == nullptr) break;
    KU_RETURN_IF_ERROR(run.pictures->Read("", FlagName(is_video ? "video" : "image"), &part));
  }
  return media;
}

StatusOr<Conversation> StartConversation(const ProgramRun& run, const PromptInput& input) {
  const Options& options = run.options;
  Conversation conversation;
  std::error_code ignored;
  const bool has_session = !options.session_file.empty() &&
                           std::filesystem::exists(options.session_file, ignored) &&
                           !std::filesystem::is_empty(options.session_file, ignored);
  if (has_session) {
    KU_ASSIGN_OR_RETURN(conversation, LoadConversation(options.session_file, run.pictures.get()));
  }
  const std::vector<Message>& messages = input.messages.messages;
  if (!messages.empty()) {
    conversation.SetMessages(messages);
    if (run.pictures != nullptr) {
      KU_RETURN_IF_ERROR(conversation.ReadPictures(input.folder, run.pictures.get()));
    }
  }
  if (options.system_prompt.has_value()) {
    if (!messages.empty() && messages[0].role == Role::kSystem) {
      return Status(StatusCode::kInvalidArgument,
                    "--system-prompt, but --messages has a system message already");
    }
    conversation.SetSystem(options.system_prompt);
  }
  if (input.text.has_value()) {
    KU_ASSIGN_OR_RETURN(const std::vector<ContentPart> media, ReadMedia(run, input));
    conversation.AddUser(*input.text, media);
  }
  return conversation;
}

bool Streams(const ProgramRun& run) {
  const Options& options = run.options;
  if (options.format == OutputFormat::kJsonLines) return true;
  const bool one_answer = options.request.num_samples == 1;
  return options.stream.value_or(run.console.output_is_terminal() && one_answer &&
                                 options.format != OutputFormat::kJson);
}

StatusOr<int> RunAnswer(ProgramRun& run, const PromptInput& input) {
  const Options& options = run.options;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<SessionFile> session,
                      SessionFile::Open(options.session_file));
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run, input));
  const TemplateOptions chat = ChatTemplateOf(run, input);
  const Prompter prompter(options, run.console, *run.tokenizer, run.context);
  KU_ASSIGN_OR_RETURN(Prompt prompt, prompter.Build(chat, options.request, &conversation));
  EngineConfig config = options.engine;
  config.expected_work = {static_cast<int64_t>(prompt.ids.size()), options.request.max_new_tokens};
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, config));
  Answerer answerer(run, *engine);
  const AnswerResult result =
      answerer.Answer(std::move(prompt), options.request, options.show_thinking);
  if (result.ok() && !answerer.WriteDumps(result)) return kExitInternal;
  if (result.ok() && !options.session_file.empty() && !result.completion.tokens.empty()) {
    conversation.AddAnswer(result.completion, chat, !options.request.ignore_eos,
                           *engine->tokenizer());
    const Status saved = session->Save(conversation, result.model);
    if (!saved.ok()) {
      run.console.Error(saved);
      return ExitCodeOf(saved.code());
    }
  }
  return ExitCodeOf(result);
}

StatusOr<int> RunTokenize(ProgramRun& run, const PromptInput& input) {
  const Options& options = run.options;
  const Tokenizer& tokenizer = *run.tokenizer;
  std::vector<int32_t> ids;
  KU_ASSIGN_OR_RETURN(const Conversation conversation, StartConversation(run, input));
  const TemplateOptions chat = ChatTemplateOf(run, input);
  if (options.raw) {
    KU_ASSIGN_OR_RETURN(Prompt prompt, RawPrompt(tokenizer, chat, conversation.Messages().back()));
    ids = std::move(prompt.ids);
  } else {
    KU_ASSIGN_OR_RETURN(ids, EncodePrompt(tokenizer, conversation, chat));
  }
  std::string line;
  for (int32_t id : ids) line += std::string(line.empty() ? "" : " ") + std::to_string(id);
  run.console.Answer(line + "\n");
  return kExitOk;
}

StatusOr<int> RunPrintPrompt(ProgramRun& run, const PromptInput& input) {
  KU_ASSIGN_OR_RETURN(const Conversation conversation, StartConversation(run, input));
  KU_ASSIGN_OR_RETURN(const std::vector<Segment> segments,
                      RenderPrompt(conversation, ChatTemplateOf(run, input)));
  run.console.Answer(JoinSegments(segments));
  return kExitOk;
}

}  // namespace kuiper::demo

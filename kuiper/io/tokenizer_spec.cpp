#include "kuiper/io/tokenizer_spec.h"

#include <algorithm>
#include <charconv>

#include "kuiper/io/component_reader.h"
#include "kuiper/io/pre_tokenizer_spec.h"
#include "kuiper/io/tokenizer_json.h"

namespace kuiper {
namespace {

// Reads the components of one file; every error names the file and the component.
class SpecReader : private ComponentReader {
 public:
  SpecReader(const std::string& name, TokenizerSpec* spec) : ComponentReader(name), spec_(spec) {}

  Status Read(const JsonNode& root) {
    if (!root.IsObject()) return Error("is not a JSON object");
    KU_RETURN_IF_ERROR(ReadAddedTokens(root.Find("added_tokens")));
    KU_RETURN_IF_ERROR(ReadNormalizer(root.Find("normalizer")));
    KU_RETURN_IF_ERROR(
        ReadPreTokenizer(root.Find("pre_tokenizer"), name(), normalizer_growth_, spec_));
    KU_RETURN_IF_ERROR(ReadModel(root.Find("model")));
    KU_RETURN_IF_ERROR(ReadDecoder(root.Find("decoder")));
    return ReadPostProcessor(root.Find("post_processor"));
  }

  // Reads tokenizer_config.json: flags of added tokens, the EOS, and whether a BOS is wanted.
  Status ReadConfig(const JsonNode& config) {
    if (!config.IsObject()) return Error("tokenizer_config.json is not a JSON object");
    const JsonNode* added = config.Find("added_tokens_decoder");
    if (added != nullptr && added->IsObject()) {
      KU_RETURN_IF_ERROR(ReadAddedTokensOfConfig(*added));
    }
    const auto token = [&](const char* key) {
      const JsonNode* value = config.Find(key);
      return value != nullptr && value->IsObject() ? value->Find("content") : value;
    };
    const JsonNode* eos = token("eos_token");
    if (eos != nullptr && eos->IsString()) spec_->eos_token = eos->text;
    const JsonNode* add = config.Find("add_bos_token");
    const JsonNode* bos = token("bos_token");
    const bool has_bos = config.Find("bos_token") != nullptr;
    if (add == nullptr || !add->IsBool() || !add->boolean || !has_bos) return OkStatus();
    if (bos == nullptr || !bos->IsString()) return Error("tokenizer_config.json: bad bos_token");
    if (!spec_->bos_token.has_value()) spec_->bos_token = bos->text;
    return OkStatus();
  }

 private:
  Status ReadAddedTokens(const JsonNode* tokens) {
    if (IsAbsent(tokens)) return OkStatus();
    if (!tokens->IsArray()) return Error("added_tokens is not an array");
    for (const JsonNode& node : tokens->items) {
      const std::string where = "added_tokens[" + std::to_string(spec_->added_tokens.size()) + "]";
      AddedToken token;
      KU_ASSIGN_OR_RETURN(token.content, String(node, "content", where));
      if (token.content.empty()) return Error(where + ": empty content");
      const JsonNode* id = node.Find("id");
      const std::optional<int64_t> value = id == nullptr ? std::nullopt : id->AsInt();
      if (!value || *value < 0 || *value > kMaxTokenId) {
        return Error(where + " \"" + token.content + "\": bad id");
      }
      token.id = static_cast<int32_t>(*value);
      KU_RETURN_IF_ERROR(ReadFlags(node, where, &token));
      spec_->added_tokens.push_back(std::move(token));
    }
    return OkStatus();
  }

  Status ReadFlags(const JsonNode& node, const std::string& where, AddedToken* token) const {
    KU_ASSIGN_OR_RETURN(token->special, Bool(node, "special", false, where));
    KU_ASSIGN_OR_RETURN(token->normalized, Bool(node, "normalized", !token->special, where));
    KU_ASSIGN_OR_RETURN(token->lstrip, Bool(node, "lstrip", false, where));
    KU_ASSIGN_OR_RETURN(token->rstrip, Bool(node, "rstrip", false, where));
    KU_ASSIGN_OR_RETURN(token->single_word, Bool(node, "single_word", false, where));
    return OkStatus();
  }

  // tokenizer_config.json repeats the added tokens, and its flags count: transformers adds them
  // again after those of tokenizer.json. Skips tokens whose id or content belongs to another token.
  Status ReadAddedTokensOfConfig(const JsonNode& tokens) {
    for (size_t i = 0; i < tokens.keys.size(); ++i) {
      const std::string& key = tokens.keys[i];
      const JsonNode& node = tokens.items[i];
      AddedToken token;
      const JsonNode* content = node.Find("content");
      const char* end = key.data() + key.size();
      const auto number = std::from_chars(key.data(), end, token.id);
      if (content == nullptr || !content->IsString() || content->text.empty() || token.id < 0 ||
          token.id > kMaxTokenId || number.ec != std::errc() || number.ptr != end) {
        return Error("tokenizer_config.json: bad entry \"" + key + "\" of added_tokens_decoder");
      }
      token.content = content->text;
      KU_RETURN_IF_ERROR(ReadFlags(node, "tokenizer_config.json", &token));
      const auto same = [&](const AddedToken& other) {
        return other.id == token.id || other.content == token.content;
      };
      auto& all = spec_->added_tokens;
      const auto found = std::find_if(all.begin(), all.end(), same);
      if (found == all.end()) {
        all.push_back(std::move(token));
      } else if (found->id == token.id && found->content == token.content) {
        *found = std::move(token);
      }
    }
    return OkStatus();
  }

  Status ReadNormalizer(const JsonNode* node) {
    if (IsAbsent(node)) return OkStatus();
    KU_ASSIGN_OR_RETURN(const std::string_view type, Type(*node, "normalizer"));
    NormalizerStep step;
    if (type == "Sequence") {
      KU_ASSIGN_OR_RETURN(const JsonNode* members, Members(*node, "normalizers", "normalizer"));
      for (const JsonNode& member : members->items) KU_RETURN_IF_ERROR(ReadNormalizer(&member));
      return OkStatus();
    }
    if (type == "NFC") {
      step.kind = NormalizerStep::Kind::kNfc;
    } else if (type == "Prepend") {
      step.kind = NormalizerStep::Kind::kPrepend;
      KU_ASSIGN_OR_RETURN(step.to, String(*node, "prepend", "normalizer Prepend"));
      KU_RETURN_IF_ERROR(CheckGrowth(1, step.to.size(), "normalizer", &normalizer_growth_));
    } else if (type == "Replace") {
      step.kind = NormalizerStep::Kind::kReplace;
      KU_ASSIGN_OR_RETURN(step.from, Pattern(*node, "String", "normalizer Replace"));
      KU_ASSIGN_OR_RETURN(step.to, String(*node, "content", "normalizer Replace"));
      KU_RETURN_IF_ERROR(
          CheckGrowth(step.from.size(), step.to.size(), "normalizer", &normalizer_growth_));
    } else {
      return Unsupported("normalizer \"" + std::string(type) + "\"");
    }
    spec_->normalizer.push_back(std::move(step));
    return OkStatus();
  }

  Status ReadModel(const JsonNode* node) {
    if (IsAbsent(node)) return Error("no model");
    if (!node->IsObject()) return Error("model is not an object");
    const JsonNode* type = node->Find("type");  // absent in old files, which are BPE
    if (type != nullptr && (!type->IsString() || type->text != "BPE")) {
      return Unsupported("model " + PythonJson(*type));
    }
    const JsonNode* dropout = node->Find("dropout");
    if (!IsAbsent(dropout) && dropout->text != "0.0" && dropout->text != "0") {
      return Unsupported("model BPE: dropout");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const JsonNode* value = node->Find(key);
      if (!IsAbsent(value) && !(value->IsString() && value->text.empty())) {
        return Unsupported(std::string("model BPE: ") + key);
      }
    }
    const JsonNode* unk = node->Find("unk_token");
    if (!IsAbsent(unk)) {
      if (!unk->IsString()) return Error("model BPE: unk_token is not a string");
      spec_->unk_token = unk->text;
    }
    const std::string where = "model BPE";
    for (const char* key : {"vocab", "merges"}) {
      // The reader leaves null where it removed the value.
      const JsonNode* value = node->Find(key);
      if (value == nullptr || !value->IsNull()) return Error(where + ": bad or missing " + key);
    }
    KU_ASSIGN_OR_RETURN(spec_->fuse_unk, Bool(*node, "fuse_unk", false, where));
    KU_ASSIGN_OR_RETURN(spec_->byte_fallback, Bool(*node, "byte_fallback", false, where));
    KU_ASSIGN_OR_RETURN(spec_->ignore_merges, Bool(*node, "ignore_merges", false, where));
    if (spec_->byte_fallback && spec_->byte_level) {
      return Unsupported("model BPE: byte_fallback together with pre_tokenizer ByteLevel");
    }
    return OkStatus();
  }

  Status ReadDecoder(const JsonNode* node) {
    if (IsAbsent(node)) return Unsupported("a missing decoder");
    KU_ASSIGN_OR_RETURN(const std::string_view type, Type(*node, "decoder"));
    if (type == "ByteLevel") {
      return spec_->byte_level ? OkStatus() : Unsupported("decoder ByteLevel for text vocabulary");
    }
    if (type != "Sequence") {
      return Unsupported("decoder \"" + std::string(type) + "\"");
    }
    if (spec_->byte_level) return Unsupported("decoder Sequence after pre_tokenizer ByteLevel");
    KU_ASSIGN_OR_RETURN(const JsonNode* members, Members(*node, "decoders", "decoder"));
    bool fused = false;
    for (const JsonNode& member : members->items) {
      KU_ASSIGN_OR_RETURN(const std::string_view step, Type(member, "decoder"));
      const std::string where = "decoder " + std::string(step);
      if (step == "Replace" && !fused && !spec_->decoder_byte_fallback) {
        KU_ASSIGN_OR_RETURN(std::string from, Pattern(member, "String", where));
        KU_ASSIGN_OR_RETURN(std::string to, String(member, "content", where));
        KU_RETURN_IF_ERROR(CheckGrowth(from.size(), to.size(), "decoder", &decoder_growth_));
        spec_->decoder_replace.emplace_back(std::move(from), std::move(to));
      } else if (step == "ByteFallback" && !fused) {
        spec_->decoder_byte_fallback = true;
      } else if (step == "Fuse") {
        fused = true;
      } else if (step == "Strip" && fused && !spec_->decoder_strips_space) {
        KU_RETURN_IF_ERROR(ReadStrip(member));
      } else {
        return Unsupported("decoder \"" + std::string(step) + "\" in this place");
      }
    }
    return OkStatus();
  }

  Status ReadStrip(const JsonNode& node) {
    KU_ASSIGN_OR_RETURN(const std::string content, String(node, "content", "decoder Strip"));
    const auto count = [&](const char* key) {
      const JsonNode* value = node.Find(key);
      return value == nullptr ? int64_t{0} : value->AsInt().value_or(-1);
    };
    if (content != " " || count("start") != 1 || count("stop") != 0) {
      return Unsupported("decoder Strip other than of one leading space");
    }
    spec_->decoder_strips_space = true;
    return OkStatus();
  }

  Status ReadPostProcessor(const JsonNode* node) {
    if (IsAbsent(node)) return OkStatus();
    KU_ASSIGN_OR_RETURN(const std::string_view type, Type(*node, "post_processor"));
    if (type == "ByteLevel") return OkStatus();  // moves offsets only
    if (type == "Sequence") {
      KU_ASSIGN_OR_RETURN(const JsonNode* members, Members(*node, "processors", "post_processor"));
      for (const JsonNode& member : members->items) KU_RETURN_IF_ERROR(ReadPostProcessor(&member));
      return OkStatus();
    }
    if (type != "TemplateProcessing") {
      return Unsupported("post_processor \"" + std::string(type) + "\"");
    }
    return ReadTemplate(*node);
  }

  // "single" must be the text alone, or one special token followed by the text.
  Status ReadTemplate(const JsonNode& node) {
    const std::string where = "post_processor TemplateProcessing";
    const JsonNode* single = node.Find("single");
    if (single == nullptr || !single->IsArray()) return Error(where + ": no array \"single\"");
    const auto& steps = single->items;
    if (steps.empty() || steps.size() > 2 || steps.back().Find("Sequence") == nullptr) {
      return Unsupported(where + " other than one token before the text");
    }
    if (steps.size() == 1) return OkStatus();
    const JsonNode* special = steps.front().Find("SpecialToken");
    if (special == nullptr) return Unsupported(where + " other than one token before the text");
    KU_ASSIGN_OR_RETURN(std::string bos, String(*special, "id", where));
    if (spec_->bos_token.has_value()) return Unsupported("a second TemplateProcessing");
    spec_->bos_token = std::move(bos);
    return OkStatus();
  }

  TokenizerSpec* spec_;
  double normalizer_growth_ = 1;
  double decoder_growth_ = 1;
};

}  // namespace

StatusOr<TokenizerSpec> ParseTokenizerSpec(std::string_view json, std::string_view config_json,
                                           const std::string& name) {
  KU_ASSIGN_OR_RETURN(TokenizerJson parsed, ParseTokenizerJson(json, name));
  TokenizerSpec spec;
  SpecReader reader(name, &spec);
  KU_RETURN_IF_ERROR(reader.Read(parsed.root));
  if (!config_json.empty()) {
    KU_ASSIGN_OR_RETURN(const JsonNode config, ParseJson(config_json, StatusCode::kTokenizer,
                                                         name + ": tokenizer_config.json"));
    KU_RETURN_IF_ERROR(reader.ReadConfig(config));
  }
  spec.vocab = std::move(parsed.vocab);
  spec.merges = std::move(parsed.merges);
  return spec;
}

}  // namespace kuiper

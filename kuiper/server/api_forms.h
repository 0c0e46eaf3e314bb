// The API formats that the server supports, for its routes.
#pragma once

#include "kuiper/server/answer_sessions.h"
#include "kuiper/server/messages_api.h"
#include "kuiper/server/openai_answer.h"
#include "kuiper/server/responses_answer.h"
#include "kuiper/server/responses_api.h"
#include "kuiper/server/verification.h"

namespace kuiper {

inline constexpr ApiFormat kChatFormat = {.is_chat = true, .make_writer = MakeOpenAiWriter};
inline constexpr ApiFormat kMessagesFormat = {.is_chat = true,
                                              .convert = ChatOfMessages,
                                              .error = MessagesError,
                                              .make_writer = MakeMessagesWriter};
inline constexpr ApiFormat kResponsesFormat = {
    .is_chat = true, .convert = ChatOfResponses, .make_writer = MakeResponsesWriter};
inline constexpr ApiFormat kCompletionFormat = {.is_chat = false, .make_writer = MakeOpenAiWriter};
inline constexpr ApiFormat kVerificationFormat = {.prepare = PrepareVerification,
                                                  .make_writer = MakeVerificationWriter};

}  // namespace kuiper

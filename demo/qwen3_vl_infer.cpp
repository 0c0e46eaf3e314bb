// Answers and chats about pictures and videos with Qwen3-VL; the name that scripts know.
#include "demo/program.h"

int main(int argc, char** argv) {
  return kuiper::demo::RunProgram({.name = "qwen3_vl_infer",
                                   .chat_family = kuiper::ChatFamily::kQwen3VL,
                                   .flags = kuiper::demo::FlagPrograms::kVision},
                                  argc, argv);
}

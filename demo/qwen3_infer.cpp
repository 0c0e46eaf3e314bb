// Answers and chats with any text model; the name that scripts for Qwen3 know.
#include "demo/program.h"

int main(int argc, char** argv) {
  return kuiper::demo::RunProgram(
      {.name = "qwen3_infer", .chat_family = kuiper::ChatFamily::kQwen3}, argc, argv);
}

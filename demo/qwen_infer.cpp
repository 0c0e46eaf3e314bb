// Answers and chats with any text model; the name that scripts for Qwen2.5 know.
#include "demo/program.h"

int main(int argc, char** argv) {
  return kuiper::demo::RunProgram(
      {.name = "qwen_infer", .chat_family = kuiper::ChatFamily::kQwen25}, argc, argv);
}

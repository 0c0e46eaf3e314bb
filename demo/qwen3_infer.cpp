// Qwen3 text models, with or without thinking: one answer, or a chat with -i.
#include "demo/program.h"

int main(int argc, char** argv) {
  return kuiper::demo::RunProgram({.name = "qwen3_infer",
                                   .models = "Qwen3 text models",
                                   .family = kuiper::ModelFamily::kQwen3,
                                   .chat_family = kuiper::ChatFamily::kQwen3},
                                  argc, argv);
}

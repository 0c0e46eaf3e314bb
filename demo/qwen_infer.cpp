// Qwen2 and Qwen2.5 text models: one answer, or a chat with -i.
#include "demo/program.h"

int main(int argc, char** argv) {
  return kuiper::demo::RunProgram({.name = "qwen_infer",
                                   .models = "Qwen2 and Qwen2.5 text models",
                                   .family = kuiper::ModelFamily::kQwen2,
                                   .chat_family = kuiper::ChatFamily::kQwen25},
                                  argc, argv);
}

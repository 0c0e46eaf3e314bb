// Answers over HTTP, in the form of OpenAI's interface.
#include "demo/program.h"

int main(int argc, char** argv) {
  return kuiper::demo::RunProgram({.name = "kuiper_server",
                                   .chat_family = kuiper::ChatFamily::kQwen3,
                                   .flags = kuiper::demo::FlagPrograms::kServe},
                                  argc, argv);
}

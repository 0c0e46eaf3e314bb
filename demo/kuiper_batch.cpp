// Many requests from a file, answers into another, with continuous batching.
#include "demo/program.h"

int main(int argc, char** argv) {
  return kuiper::demo::RunProgram({.name = "kuiper_batch",
                                   .chat_family = kuiper::ChatFamily::kQwen3,
                                   .flags = kuiper::demo::FlagPrograms::kBatch},
                                  argc, argv);
}

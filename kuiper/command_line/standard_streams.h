// What every program does about its standard streams before it opens a file.
#pragma once

namespace kuiper {

// Gives each of stdin, stdout and stderr that is closed (`prog >&-`) a descriptor on which every
// read and write fails. Otherwise the next file takes the free number: a chat would read the model
// as its input, and error lines would end up in an output file.
void OccupyStandardStreams();

}  // namespace kuiper

// Checks that every program makes on its standard streams before it opens a file.
#pragma once

namespace kuiper {

// If stdin, stdout or stderr is closed (`prog >&-`), gives it a descriptor on which every read and
// write fails. Otherwise the next opened file would take the free number: a chat would read the
// model as its input, and error lines would end up in an output file.
void OccupyStandardStreams();

}  // namespace kuiper

// What a command, or a daemon that is still attached to it, has to say beside its answer.
#pragma once

#include <string_view>

namespace clairfs {

/// Prints "clairfs: LINE" to stderr. Where that cannot be written the line is lost, and no more: nothing is
/// to fail because nobody can be told about it.
void print_to_stderr(std::string_view line);

}  // namespace clairfs

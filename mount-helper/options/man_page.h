// The option lists of the man pages, made from the option table.
#pragma once

#include <string>

namespace clairfs {

/// `page` (roff) with the line "@FLAGS@" replaced by the options as flags, "@OPTIONS@" by the same as -o
/// options, and "@VERSION@" by the version.
std::string fill_man_page(std::string page);

}  // namespace clairfs

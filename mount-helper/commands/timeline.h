// The course of a mount as a picture: `clairfs top --plot`.
#pragma once

#include <string>
#include <vector>

#include "fs/control/history.h"

namespace clairfs {

/// An SVG document of three charts over the time since the mount began: bytes a second, by what answered the
/// reads and pushed ahead of them; samples ahead; readers that wait.
std::string timeline(const std::vector<HistoryRow>& rows, const std::string& title);

}  // namespace clairfs

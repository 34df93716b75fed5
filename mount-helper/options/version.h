// The version and the commit of this clairfs.
#pragma once

#include <string>
#include <string_view>

namespace clairfs {

/// The commit that was built: 12 digits, and "-dirty" if files were changed since; empty if it was not built
/// in a git work tree. Made by mount-helper/commit.cmake.
std::string_view commit_id();

/// "0.1.0 (461f177a3b2c)", or "0.1.0".
inline std::string version_text() {
  std::string text = CLAIRFS_VERSION;
  if (!commit_id().empty()) text += " (" + std::string(commit_id()) + ")";
  return text;
}

}  // namespace clairfs

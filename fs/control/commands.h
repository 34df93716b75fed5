// Commands for a mount that runs: one parser behind the control file, the xattr and the socket.
//
//   plan TEXT            puts a plan in force (TEXT as parse_plan() takes it); answers with its text
//   cancel [NAME|--all]  cancels a plan ("default" if none is named), or every one
//   cancel-all           the same as the latter
//   show [NAME]          all plans, or one, and their state
//   json                 all plans as a JSON array
//   next [NAME] COUNT    the next files of a plan (of the only one, else "default", if none is named)
//   check [NAME]         predicted against observed so far (likewise)
//   detect [json] [full] what readers without a plan seem to follow, and the line that registers it; with
//                        "full" all shuffles of torch are searched from now on
//   index TEXT           makes the index of a plan's samples (IndexAhead); answers at once, how far it is
//
// The socket has the commands of residency.h besides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache/base/result.h"
#include "plan/plan_manager.h"

namespace clairfs {

/// Of `next`: an answer of some megabytes.
inline constexpr uint64_t kMostNextFiles = 100000;

/// Carries out one command. May wait for the dataset: not for a thread that answers FUSE requests. Errors:
/// EINVAL for what is no command; those of PlanManager.
Result<std::string> run_control_command(PlanManager& plans, std::string_view command);

/// A write to MOUNT/.clairfs/plan: a plan's text, or "cancel [NAME|--all]". `before` is the part of the text
/// that was already taken as a plan: the whole takes its place, and where that fails neither is left.
Status write_plan_file(PlanManager& plans, std::string_view text, std::string_view before = "");

}  // namespace clairfs

#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "fs/base/text_file.h"
#include "mount-helper/client/mount_list.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/inspect/bundle.h"
#include "mount-helper/inspect/findings.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr int exit_ill = 1;  // something needs a cure
constexpr auto kDoctorPatience = std::chrono::seconds(5);

struct DoctorArguments {
  std::string path;
  std::string bundle;
  bool json = false;
  bool names = false;
};

Result<std::vector<std::string>> mounts_to_look_at(const std::string& path) {
  std::vector<std::string> mountpoints;
  if (!path.empty()) {
    const auto mount = clairfs_mount_of(path);
    if (!mount) return mount.error();
    mountpoints.push_back(mount->mountpoint);
    return mountpoints;
  }
  const auto mounts = list_mounts();
  if (!mounts) return mounts.error();
  for (const ListedMount& mount : *mounts) mountpoints.push_back(mount.mountpoint);
  return mountpoints;
}

std::vector<Finding> findings_of(const std::string& mountpoint) {
  const auto text = read_with_deadline(mountpoint + "/.clairfs/stats.json", kDoctorPatience);
  if (text) return mount_findings(mountpoint, nlohmann::json::parse(*text, nullptr, false));
  switch (text.error().code) {
    case ENOTCONN:
      return {
          {Finding::Kind::bad, mountpoint, "is stale: its daemon is gone", "clairfs umount " + mountpoint}};
    case ETIMEDOUT:
      return {{Finding::Kind::bad, mountpoint, "does not answer", "clairfs umount --lazy " + mountpoint}};
    case EACCES:
      return {{Finding::Kind::note, mountpoint, "is another user's, who lets nobody in",
               "ask him, or root, to look"}};
    default:
      return {{Finding::Kind::bad, mountpoint, text.error().message, "see its log"}};
  }
}

int doctor(const DoctorArguments& arguments) {
  const auto mountpoints = mounts_to_look_at(arguments.path);
  if (!mountpoints) return fail(mountpoints.error());
  std::vector<Finding> all = machine_findings(gather_fuse_facts("/"), gather_machine_facts());
  const std::string machine = "Machine\n" + findings_text(all);
  std::string text = machine;
  for (const std::string& mountpoint : *mountpoints) {
    const auto found = findings_of(mountpoint);
    text += "Mount\n" + findings_text(found);
    all.insert(all.end(), found.begin(), found.end());
  }
  fmt::print("{}", arguments.json ? findings_json(all) : text);
  if (!arguments.bundle.empty()) {
    const Status written = write_text_file(
        arguments.bundle, bundle_text(*mountpoints, arguments.names ? text : machine, arguments.names));
    if (!written) return fail(written.error(), exit_system);
    if (!arguments.json) fmt::print("wrote {}; read it before you send it\n", arguments.bundle);
  }
  const int done = finish_output();
  if (done != exit_success) return done;
  for (const Finding& finding : all) {
    if (finding.kind == Finding::Kind::bad) return exit_ill;
  }
  return exit_success;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("doctor", "Say what a mount lacks, and what is wrong with those there are");
  command->footer("Exit status: 0 all is well, 1 something needs a cure, 2 it could not be found out.");
  const auto arguments = std::make_shared<DoctorArguments>();
  command->add_option("MOUNTPOINT", arguments->path,
                      "Mountpoint, or any path inside the mount (default: all mounts)");
  CLI::Option* bundle =
      command->add_option("--bundle", arguments->bundle,
                          "Write what a report of a fault needs to a file, without names of files");
  bundle->type_name("FILE");
  command->add_flag("--json", arguments->json, "As JSON");
  command->add_flag("--names", arguments->names, "With names of files, and the whole log")->needs(bundle);
  command->callback([arguments, &status] { status = doctor(*arguments); });
}

}  // namespace clairfs

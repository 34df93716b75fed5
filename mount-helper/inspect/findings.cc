#include "mount-helper/inspect/findings.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <liburing.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "cache/base/units.h"
#include "fs/base/kernel_version.h"
#include "mount-helper/commands/commands.h"
#include "net/mpi/library.h"

namespace clairfs {
namespace {

using Kind = Finding::Kind;
using Json = nlohmann::json;

constexpr uint64_t kLittleMemory = 512ULL << 20;  // the RAM tier is a quarter of it
constexpr uint64_t kFewFiles = 256;               // the scan's threads and 64 reads at once take about 100
constexpr uint64_t kLittleDisk = 200ULL << 20;    // the catalog of ImageNet and its temporary copy

std::string program_in_path(std::initializer_list<const char*> names) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : names) {
      const std::string file = folder + "/" + name;
      if (::access(file.c_str(), X_OK) == 0) return file;
    }
  }
  return "";
}

int error_of_a_ring() {
  io_uring ring{};
  const int code = ::io_uring_queue_init(2, &ring, 0);
  if (code < 0) return -code;
  ::io_uring_queue_exit(&ring);
  return 0;
}

// The folder itself or the nearest above it that is there.
std::string existing_part(std::string folder) {
  while (!folder.empty() && folder != "/" && ::access(folder.c_str(), F_OK) != 0)
    folder = std::filesystem::path(folder).parent_path();
  return folder.empty() ? "/" : folder;
}

Finding device_finding(const FuseFacts& fuse) {
  if (fuse.device_errno == 0) return {Kind::good, "/dev/fuse", "can be opened", ""};
  return {Kind::bad, "/dev/fuse", std::strerror(fuse.device_errno),
          fuse.device_errno == ENOENT
              ? "modprobe fuse; in a container add --device /dev/fuse"
              : "chmod 666 /dev/fuse, as udev has it; in a container add --device /dev/fuse"};
}

Finding helper_finding(const FuseFacts& fuse) {
  const std::string subject = "fusermount3";
  if (fuse.privileged) return {Kind::good, subject, "not needed: this process may mount itself", ""};
  if (fuse.fusermount.empty()) return {Kind::bad, subject, "is missing", "apt install fuse3"};
  if (!fuse.fusermount_setuid) {
    return {Kind::bad, subject, fuse.fusermount + " is not setuid root",
            "chmod u+s " + fuse.fusermount + ", or mount as root"};
  }
  if (fuse.no_new_privs) {
    return {Kind::bad, subject, "setuid programs have no effect here (no_new_privs)",
            "start the container without no-new-privileges, or with --cap-add SYS_ADMIN"};
  }
  return {Kind::good, subject, fuse.fusermount, ""};
}

Finding allow_other_finding(const FuseFacts& fuse) {
  if (fuse.root || fuse.user_allow_other) return {Kind::good, "--allow-other", "may be used", ""};
  return {Kind::note, "--allow-other", "may not be used by this user",
          "add the line user_allow_other to /etc/fuse.conf"};
}

Finding ring_finding(int code) {
  if (code == 0) return {Kind::good, "io_uring", "allowed", ""};
  return {Kind::note, "io_uring", fmt::format("not allowed ({}); threads read instead", std::strerror(code)),
          "sysctl kernel.io_uring_disabled=0; in a container allow it in the seccomp profile"};
}

Finding memory_finding(uint64_t bytes) {
  const std::string text = format_size(bytes) + " available, the limits of the cgroup counted";
  if (bytes >= kLittleMemory) return {Kind::good, "memory", text, ""};
  return {Kind::note, "memory", text, "raise the memory of the container or job, or give a small --ram"};
}

Finding catalog_finding(const MachineFacts& machine) {
  const std::string subject = "catalogs";
  if (machine.catalog_dir.empty())
    return {Kind::bad, subject, "this user has no home directory to keep them in", "give --catalog-dir DIR"};
  if (!machine.catalog_writable) {
    return {Kind::bad, subject, machine.catalog_dir + " cannot be written",
            "make it writable or give --catalog-dir DIR"};
  }
  const std::string text = fmt::format("{}, {} free", machine.catalog_dir, format_size(machine.catalog_free));
  if (machine.catalog_free >= kLittleDisk) return {Kind::good, subject, text, ""};
  return {Kind::note, subject, text, "clairfs cache prune, or give --catalog-dir DIR"};
}

Finding job_finding(const MachineFacts& machine) {
  if (!machine.mpi_error.empty()) {
    return {Kind::note, "jobs", "MPI cannot be loaded: " + machine.mpi_error,
            "needed for several nodes only: apt install mpich"};
  }
  if (machine.launcher.empty())
    return {Kind::good, "jobs", "MPI is there; no mpiexec or srun, so jobs are formed by --job HOST:PORT",
            ""};
  return {Kind::good, "jobs", "MPI is there, and " + machine.launcher, ""};
}

// What helps against a kind of trouble (fs/control/troubles.h).
std::string cure_of(const std::string& kind, const std::string& mountpoint) {
  static const std::array<std::pair<std::string_view, std::string_view>, 15> kCures{
      std::pair{"reads_failed", "see the log for the cause; read the same file on the source"},
      std::pair{"reads_refused", "the dataset must not change: clairfs umount, then mount again"},
      std::pair{"fetches_refused", "the dataset must not change: clairfs umount, then mount again"},
      std::pair{"dirty_writes", "end that process; open files read-only (np.memmap with mode='r')"},
      std::pair{"plan_suspended", "clairfs plan check {} names the difference; set the plan again"},
      std::pair{"plan_failed", "set it again without the mistake, or clairfs plan cancel {} --name NAME"},
      std::pair{"entries_unreadable", "mount as a user who may read them, or leave it"},
      std::pair{"source_silent", "look at the source's filesystem and network; cached chunks are still read"},
      std::pair{"source_errors", "look at the source's filesystem and network"},
      std::pair{"nvme_silent", "look at the device (dmesg); what it has is read from the source meanwhile"},
      std::pair{"nvme_full", "free some space there, or mount with a smaller --nvme DIR:SIZE"},
      std::pair{"nvme_cut_short", "mend that and mount again, or mount with another --nvme DIR"},
      std::pair{"nvme_errors", "look at the device (dmesg); until it works, mount without it"},
      std::pair{"nvme_checksum_failures", "look at the device (dmesg, smartctl); the data was fetched again"},
      std::pair{"nvme_disabled", "the log has the cause; mount again when it is mended"}};
  for (const auto& [known, cure] : kCures) {
    if (kind != known) continue;
    std::string text(cure);
    if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, mountpoint);
    return text;
  }
  return "see the log";
}

std::string string_in(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_at(const Json& stats, const char* pointer) {
  const Json::json_pointer at(pointer);
  return stats.contains(at) && stats[at].is_number() ? stats[at].get<double>() : 0;
}

}  // namespace

MachineFacts gather_machine_facts() {
  MachineFacts facts;
  utsname names{};
  if (::uname(&names) == 0) facts.kernel = names.release;
  facts.io_uring_errno = error_of_a_ring();
  const Machine machine = this_machine();
  facts.memory = available_memory(machine);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) facts.open_files = files.rlim_cur;
  const auto options = standing_options();
  if (!options) facts.options_error = options.error().message;
  facts.catalog_dir = (options ? *options : default_options(machine)).catalog_dir;
  const std::string there = existing_part(facts.catalog_dir);
  struct statvfs space {};
  if (::statvfs(there.c_str(), &space) == 0) facts.catalog_free = uint64_t{space.f_bavail} * space.f_frsize;
  facts.catalog_writable = ::access(there.c_str(), W_OK) == 0;
  if (const auto& library = loaded_mpi(); !library) facts.mpi_error = library.error().message;
  facts.launcher = program_in_path({"mpiexec", "srun"});
  return facts;
}

std::vector<Finding> machine_findings(const FuseFacts& fuse, const MachineFacts& machine) {
  std::vector<Finding> found;
  found.push_back(zero_message_open_is_safe(parse_kernel_version(machine.kernel))
                      ? Finding{Kind::good, "kernel", machine.kernel, ""}
                      : Finding{Kind::note, "kernel",
                                machine.kernel +
                                    " may deadlock with opens that make no request, so each makes "
                                    "one",
                                "a kernel of 6.13 or later opens cached files faster"});
  found.push_back(device_finding(fuse));
  found.push_back(helper_finding(fuse));
  found.push_back(allow_other_finding(fuse));
  found.push_back(ring_finding(machine.io_uring_errno));
  found.push_back(memory_finding(machine.memory));
  found.push_back(machine.open_files >= kFewFiles
                      ? Finding{Kind::good, "open files", fmt::format("at most {}", machine.open_files), ""}
                      : Finding{Kind::note, "open files", fmt::format("at most {}", machine.open_files),
                                "ulimit -n 1024"});
  if (!machine.options_error.empty())
    found.push_back({Kind::bad, "options", machine.options_error, "mend it: each mount takes it"});
  found.push_back(catalog_finding(machine));
  found.push_back(job_finding(machine));
  return found;
}

std::vector<Finding> mount_findings(const std::string& mountpoint, const Json& stats) {
  std::vector<Finding> found;
  const auto troubles = stats.is_object() ? stats.find("troubles") : stats.end();
  if (troubles != stats.end() && troubles->is_array()) {
    for (const Json& trouble : *troubles) {
      const std::string first = string_in(trouble, "first");
      found.push_back({Kind::bad, mountpoint,
                       string_in(trouble, "text") + (first.empty() ? "" : ": " + first),
                       cure_of(string_in(trouble, "kind"), mountpoint)});
    }
  }
  if (!stats.is_object()) {
    found.push_back(
        {Kind::bad, mountpoint, "its stats.json is no JSON", "is it a mount of another version?"});
    return found;
  }
  const double dataset = number_at(stats, "/catalog/bytes");
  const double tiers = number_at(stats, "/tiers/ram/capacity") + number_at(stats, "/tiers/nvme/capacity");
  const auto size = [](double bytes) { return format_size(static_cast<uint64_t>(std::max(bytes, 0.0))); };
  const std::string fit = fmt::format("tiers of {} for a dataset of {}", size(tiers), size(dataset));
  if (tiers >= dataset || string_in(stats, "job") != "" || stats.contains("job")) {
    found.push_back({Kind::good, mountpoint, fit, ""});
  } else {
    found.push_back({Kind::note, mountpoint, fit + ": what does not fit is read again each epoch",
                     "give --nvme DIR or a larger --ram, where there is some"});
  }
  if (found.front().kind == Kind::good) found.front().text = "no troubles; " + found.front().text;
  return found;
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    const char* mark = finding.kind == Kind::good ? "ok" : finding.kind == Kind::note ? "note" : "BAD";
    out += fmt::format("  {:<5} {:<14} {}\n", mark, escaped(finding.subject), escaped(finding.text));
    if (!finding.cure.empty()) out += fmt::format("        {:<14} cure: {}\n", "", escaped(finding.cure));
  }
  return out;
}

std::string findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    const char* kind = finding.kind == Kind::good ? "good" : finding.kind == Kind::note ? "note" : "bad";
    list.push_back(
        {{"kind", kind}, {"subject", finding.subject}, {"text", finding.text}, {"cure", finding.cure}});
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace clairfs

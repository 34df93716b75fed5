#include "mount-helper/options/option_table.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cache/base/text.h"
#include "cache/base/units.h"
#include "mount-helper/options/defaults.h"

namespace clairfs {
namespace {

using Values = std::vector<std::string>;

constexpr uint64_t kSmallestChunk = 64ULL << 10;  // below, per-chunk bookkeeping outweighs the data
// On a slow filesystem the bytes that a record's chunks have of its neighbours outweigh that, too.
constexpr uint64_t kSmallestRecordChunk = 16ULL << 10;
constexpr uint64_t kLargestChunk = 64ULL << 20;  // above, one small read would wait for too much
constexpr unsigned kMostThreadsAsked = 1024;     // more is a typing error
constexpr uint32_t kMostNodes = 1'000'000;       // as above
constexpr unsigned kLongestWait = 24 * 60 * 60;  // as above

Status set_size(uint64_t& field, const std::string& value) {
  const auto size = parse_size(value);
  if (!size) return size.error();
  field = *size;
  return {};
}

Status set_count(unsigned& field, const std::string& value) {
  const auto number = parse_whole<unsigned>(value);
  if (!number || *number < 1 || *number > kMostThreadsAsked) {
    return Error{EINVAL, fmt::format("'{}' is not a number from 1 to {}", value, kMostThreadsAsked)};
  }
  field = *number;
  return {};
}

// "40%".
Result<unsigned> parse_share(const std::string& value) {
  const auto share = parse_whole<unsigned>(value.substr(0, value.size() - 1));
  if (!share || *share > 100) return Error{EINVAL, fmt::format("'{}' is no share from 0% to 100%", value)};
  return *share;
}

// A size, or a share of the memory available.
Status set_memory(uint64_t& field, const std::string& value) {
  if (!value.ends_with('%')) return set_size(field, value);
  const auto share = parse_share(value);
  if (!share) return share.error();
  field = available_memory(this_machine()) / 100 * *share;
  return {};
}

Status set_switch(bool& field, const std::string& value) {
  for (const auto& [yes, no] : {std::pair{"true", "false"}, {"yes", "no"}, {"on", "off"}, {"1", "0"}}) {
    if (value != yes && value != no) continue;
    field = value == yes;
    return {};
  }
  return Error{EINVAL, fmt::format("'{}' is neither true nor false", value)};
}

Status set_job(MountOptions& options, const std::string& value) {
  auto at = parse_host_port(value);
  if (!at) return at.error();
  options.job = std::move(*at);
  return {};
}

Status set_number(std::optional<uint32_t>& field, const std::string& value, uint32_t least) {
  const auto number = parse_whole<uint32_t>(value);
  if (!number || *number < least || *number > kMostNodes)
    return Error{EINVAL, fmt::format("'{}' is not a number from {} to {}", value, least, kMostNodes)};
  field = number;
  return {};
}

Status set_job_timeout(MountOptions& options, const std::string& value) {
  const auto seconds = parse_whole<unsigned>(value);
  if (!seconds || *seconds < 1 || *seconds > kLongestWait)
    return Error{EINVAL, fmt::format("'{}' is not a number of seconds from 1 to {}", value, kLongestWait)};
  options.job_timeout = std::chrono::seconds(*seconds);
  return {};
}

Status set_network(MountOptions& options, const std::string& value) {
  constexpr std::string_view kOfLists = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_,:^";
  if (value.empty() || value.find_first_not_of(kOfLists) != std::string::npos) {
    return Error{EINVAL, fmt::format("'{}' is neither safe nor fast nor a list as UCX_TLS takes it, such as "
                                     "rc,tcp,self",
                                     value)};
  }
  options.network = value;
  return {};
}

Values number_value(const std::optional<uint32_t>& number) {
  return number ? Values{std::to_string(*number)} : Values{};
}

Status set_path(std::string& field, const std::string& value) {
  if (value.empty()) return Error{EINVAL, "the path is empty"};
  field = value;
  return {};
}

Status set_choice(std::string& field, const std::string& value,
                  std::initializer_list<std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    return Error{EINVAL, fmt::format("'{}' is not one of {}", value, fmt::join(choices, ", "))};
  }
  field = value;
  return {};
}

Result<uint32_t> chunk_size(std::string_view value, uint64_t least) {
  const auto size = parse_size(value);
  if (!size) return size.error();
  if (*size % kChunkUnit != 0 || *size < least || *size > kLargestChunk) {
    return Error{EINVAL,
                 fmt::format("a chunk of {} bytes is not possible; write a multiple of {} from {} to {}",
                             *size, kChunkUnit, format_size(least), format_size(kLargestChunk))};
  }
  return static_cast<uint32_t>(*size);
}

Status set_chunk(MountOptions& options, const std::string& value) {
  const auto size = chunk_size(value, kSmallestChunk);
  if (!size) return size.error();
  options.chunk = *size;
  return {};
}

// A pattern may have a '=' in it, a size has not.
Status add_record_chunk(MountOptions& options, const std::string& value) {
  const size_t equals = value.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return Error{EINVAL, fmt::format("'{}' is not of the form GLOB=SIZE, such as '*.h5=256K'", value)};
  const auto size = chunk_size(std::string_view(value).substr(equals + 1), kSmallestRecordChunk);
  if (!size) return size.error();
  options.record_chunks.push_back({value.substr(0, equals), *size});
  return {};
}

Values record_chunk_values(const MountOptions& options) {
  Values values;
  for (const auto& [pattern, chunk] : options.record_chunks)
    values.push_back(fmt::format("{}={}", pattern, chunk));
  return values;
}

Status add_nvme(MountOptions& options, const std::string& value) {
  NvmeDir dir{value, 0};
  const size_t colon = value.rfind(':');
  if (colon != std::string::npos && value.find('/', colon) == std::string::npos) {
    dir.directory = value.substr(0, colon);
    const std::string room = value.substr(colon + 1);
    const bool is_share = room.ends_with('%');
    const auto share = is_share ? parse_share(room) : Result<unsigned>(0U);
    if (!share) return share.error();
    const auto capacity = is_share ? Result<uint64_t>(0U) : parse_size(room);
    if (!capacity) return capacity.error();
    if (*capacity == 0 && *share == 0)
      return Error{EINVAL, "a capacity of 0 keeps nothing; leave the option out instead"};
    dir.capacity = *capacity;
    dir.share = *share;
  }
  if (dir.directory.empty()) return Error{EINVAL, "the directory is missing; write DIR or DIR:SIZE"};
  options.nvme.push_back(dir);
  return {};
}

Values nvme_values(const MountOptions& options) {
  Values values;
  for (const NvmeDir& dir : options.nvme) {
    values.push_back(dir.capacity != 0 ? fmt::format("{}:{}", dir.directory, dir.capacity)
                     : dir.share != 0  ? fmt::format("{}:{}%", dir.directory, dir.share)
                                       : dir.directory);
  }
  return values;
}

Status set_io(MountOptions& options, const std::string& value) {
  std::string kind;
  if (Status known = set_choice(kind, value, {"auto", "uring", "threads"}); !known) return known;
  options.io = kind == "uring" ? IoKind::uring : kind == "threads" ? IoKind::threads : IoKind::automatic;
  return {};
}

Values io_values(const MountOptions& options) {
  switch (options.io) {
    case IoKind::uring:
      return {"uring"};
    case IoKind::threads:
      return {"threads"};
    case IoKind::automatic:
      break;
  }
  return {"auto"};
}

Values size_value(uint64_t bytes) {
  return {std::to_string(bytes)};
}
Values switch_value(bool on) {
  return {on ? "true" : "false"};
}
Values path_value(const std::string& path) {
  return path.empty() ? Values{} : Values{path};
}

const std::array kTable = {
    OptionSpec{.name = "ram",
               .argument = "SIZE",
               .default_text = "25 % of the memory available",
               .help = "Size of the RAM tier",
               .man = "Memory that the RAM tier may take; never more is used. 0 switches the tier off. The "
                      "default is a "
                      "quarter of MemAvailable, or of the cgroup's limit where that is lower: the training "
                      "processes need "
                      "the rest.",
               .set = [](MountOptions& o, const std::string& v) { return set_memory(o.ram, v); },
               .get = [](const MountOptions& o) { return size_value(o.ram); }},
    OptionSpec{
        .name = "nvme",
        .argument = "DIR[:SIZE]",
        .default_text = "none",
        .help = "Directory on a fast local disk for the NVMe tier; SIZE as 500G, or 50% of what is free "
                "there, 80% if left out; may be repeated",
        .man = "Keeps chunks in DIR, at most SIZE bytes. SIZE may be a share of what is free there at "
               "the start, what an earlier mount has left included, such as 50%; 80% if not given. The "
               "log says how much that is. A SIZE of more than is free is taken as what is free, and one "
               "of more than the whole filesystem has is refused. In a unit of systemd % is written as "
               "%%. DIR is made, mode 0700, if only "
               "its last component is missing; one that "
               "exists must be yours, with that mode, and hold nothing else. It belongs to one daemon "
               "at a time and stays "
               "warm for the next mount. Where there is room, it gets copies of what the RAM tier "
               "holds, for the next mount. May be given several times. There is none by default: which "
               "disk is fast cannot be known.",
        .set = add_nvme,
        .get = nvme_values},
    OptionSpec{.name = "staging",
               .argument = "SIZE",
               .default_text = "1 GiB or 10 % of the memory available, whichever is less",
               .help = "Bytes pushed into the page cache ahead of the reader",
               .man = "The staging window: samples that a plan says are next are pushed into the kernel's "
                      "page cache up to "
                      "this many bytes ahead. A window of seconds is enough, so the default takes little of "
                      "the memory.",
               .set = [](MountOptions& o, const std::string& v) { return set_memory(o.staging, v); },
               .get = [](const MountOptions& o) { return size_value(o.staging); }},
    OptionSpec{.name = "page-cache",
               .argument = "SIZE",
               .default_text = "25 % of the memory available",
               .help = "Bytes of page cache that plans may keep after reading",
               .man =
                   "Samples of plans stay in the kernel's page cache after they were read, so later epochs "
                   "need no tier and no source for them: all of a plan whose samples take no more than "
                   "this, and of another plan of files, or of records of 32 KiB and more, as many as fit. "
                   "The tiers then hold other samples. The kernel takes such pages back when memory is "
                   "short, and they are then pushed again. Plans together never keep more than this. 0: what "
                   "was read is dropped, unless "
                   "the plan fits the staging window. The default is a quarter of "
                   "MemAvailable, or of the "
                   "cgroup's limit where that is lower.",
               .set = [](MountOptions& o, const std::string& v) { return set_memory(o.page_cache, v); },
               .get = [](const MountOptions& o) { return size_value(o.page_cache); }},
    OptionSpec{
        .name = "chunk",
        .argument = "SIZE",
        .default_text = "4M",
        .help = "Largest unit of caching",
        .man = "A file up to this size is cached whole, a larger one in aligned pieces of it. A multiple of "
               "4096 from "
               "64K to 64M. 4M reaches the full bandwidth of a parallel filesystem and still places finely.",
        .set = set_chunk,
        .get = [](const MountOptions& o) { return size_value(o.chunk); }},
    OptionSpec{
        .name = "record-chunk",
        .argument = "GLOB=SIZE",
        .default_text = "128K for files of records from 64 MiB on, by their names",
        .help = "Unit of caching of files that hold many records; may be repeated",
        .man = "A file of many samples is best cached in pieces of about a sample's size. Files of 64 MiB or "
               "more whose names end in .mdb, .lmdb, .h5, .hdf5, .npy, .arrow, .beton, .mds, .zip or .bin "
               "are cached in pieces of 128K (larger ones where they hold more than 1 TiB together), "
               "and those that match GLOB, whatever their size, in pieces of SIZE, from 16K to that of "
               "--chunk. Of a piece that goes to RAM what a plan needs is read before the rest, unless the "
               "filesystem takes long to seek. Pieces that go to NVMe are read whole, "
               "and with them parts of samples whose turn comes later. On a slow filesystem a quarter of a "
               "sample's size makes the first shuffled epoch shorter there, for 30 "
               "bytes of memory and some microseconds a piece. GLOB is a "
               "pattern as the shell has them: of the name, or with a / in it of the path below the "
               "source. The first that matches holds. In a job those of node 0 hold. No plan changes "
               "the pieces of its files: clairfs index says which SIZE suits one, to be given to the next "
               "mount.",
        .set = add_record_chunk,
        .get = record_chunk_values},
    OptionSpec{.name = "io",
               .argument = "auto|uring|threads",
               .default_text = "auto",
               .help = "How the source and the NVMe tier are read",
               .man = "uring uses io_uring, threads a pool of threads. auto takes io_uring and falls back to "
                      "threads where "
                      "the kernel or a container forbids it, with one line in the log.",
               .set = set_io,
               .get = io_values},
    OptionSpec{.name = "pfs-concurrency",
               .argument = "NUMBER",
               .default_text = "64",
               .help = "Reads of the source at once, at most",
               .man = "Upper bound for the operations under way on the source. Below it the number adapts, "
                      "since more readers "
                      "than a parallel filesystem likes make it slower.",
               .set = [](MountOptions& o, const std::string& v) { return set_count(o.pfs_concurrency, v); },
               .get = [](const MountOptions& o) { return Values{std::to_string(o.pfs_concurrency)}; }},
    OptionSpec{
        .name = "fuse-threads",
        .argument = "NUMBER",
        .default_text = "the number of processors, from 2 to 8",
        .help = "Threads that answer the kernel",
        .man = "Threads that take requests from the kernel. They never wait for data, so a few are enough.",
        .set = [](MountOptions& o, const std::string& v) { return set_count(o.fuse_threads, v); },
        .get = [](const MountOptions& o) { return Values{std::to_string(o.fuse_threads)}; }},
    OptionSpec{
        .name = "peers",
        .argument = "on|off",
        .default_text = "on",
        .help = "Whether the nodes of a job serve each other",
        .man =
            "A job of several nodes, which mpiexec or srun starts or --job forms, shares one cache: every "
            "byte leaves the source once. off gives each node a cache of its own, to see what that is worth.",
        .set =
            [](MountOptions& o, const std::string& v) {
              std::string choice;
              Status known = set_choice(choice, v, {"on", "off"});
              if (known) o.peers = choice == "on";
              return known;
            },
        .get = [](const MountOptions& o) { return Values{o.peers ? "on" : "off"}; }},
    OptionSpec{
        .name = "job",
        .argument = "HOST:PORT",
        .default_text = "none",
        .help = "Forms a job of several nodes without mpiexec or srun: they meet there",
        .man = "For torchrun, Kubernetes and plain shells: each node mounts with the same HOST:PORT, which "
               "names the machine of node 0 as all can reach it, and a free port of it (not torch's "
               "MASTER_PORT). It takes "
               "the place of a launcher, and wins over one. The mount may be in the background. Once all "
               "have come the port is "
               "closed. Each waits for the others for --job-timeout, and says who is missing.",
        .set = set_job,
        .get = [](const MountOptions& o) { return o.job ? Values{o.job->text()} : Values{}; }},
    OptionSpec{.name = "rank",
               .argument = "R",
               .default_text = "GROUP_RANK, else JOB_COMPLETION_INDEX of the environment",
               .help = "With --job: the number of this node, from 0 on",
               .man = "torchrun and Kubernetes' indexed jobs set these variables.",
               .set = [](MountOptions& o, const std::string& v) { return set_number(o.rank, v, 0); },
               .get = [](const MountOptions& o) { return number_value(o.rank); }},
    OptionSpec{
        .name = "nodes",
        .argument = "N",
        .default_text = "GROUP_WORLD_SIZE, else WORLD_SIZE / LOCAL_WORLD_SIZE of the environment",
        .help = "With --job: how many nodes it has",
        .man = "torchrun sets these variables. Kubernetes tells its completions to nobody: give it there.",
        .set = [](MountOptions& o, const std::string& v) { return set_number(o.nodes, v, 1); },
        .get = [](const MountOptions& o) { return number_value(o.nodes); }},
    OptionSpec{
        .name = "job-secret",
        .argument = "FILE",
        .default_text = "what CLAIRFS_JOB_SECRET in the environment holds, else none",
        .help = "With --job: a file with the secret that keeps strangers out",
        .man = "The same on all nodes. It is shown to be known, never sent; blanks around it do not count. "
               "Without one, whoever reaches the port before all have come can take a node's place. It "
               "guards how the job "
               "forms; what the nodes then send each other is neither encrypted nor authenticated, as "
               "with MPI everywhere.",
        .set = [](MountOptions& o, const std::string& v) { return set_path(o.job_secret_file, v); },
        .get = [](const MountOptions& o) { return path_value(o.job_secret_file); }},
    OptionSpec{.name = "job-timeout",
               .argument = "SECONDS",
               .default_text = "120",
               .help = "How long to wait for the other nodes of a job",
               .man = "With --job and with a launcher. Nodes may start minutes apart under a busy scheduler.",
               .set = set_job_timeout,
               .get = [](const MountOptions& o) { return Values{std::to_string(o.job_timeout.count())}; }},
    OptionSpec{
        .name = "network",
        .argument = "safe|fast|LIST",
        .default_text = "what UCX_TLS in the environment says, else safe",
        .help = "What the nodes of a job talk over: safe is TCP, fast may be InfiniBand",
        .man = "safe takes TCP, over which a node that dies never ends others or cuts them off; fast takes "
               "whatever UCX finds, InfiniBand, other RDMA and shared memory included, where the death of a "
               "node may do both. LIST is a list "
               "as UCX_TLS takes it, such as rc,sm,self. Given here it wins over UCX_TLS. .clairfs/peers "
               "shows what is in force.",
        .set = set_network,
        .get = [](const MountOptions& o) { return path_value(o.network); }},
    OptionSpec{
        .name = "infer",
        .argument = "off|cheap|full",
        .default_text = "cheap",
        .help = "Whether the order of readers without a plan is found",
        .man =
            "cheap compares the files that a reader without a plan opens first, or the records that it reads "
            "of a large file whose index is there, with the orders that are "
            "likely: sequential ones, and those of the samplers with the seeds that people use. One that is "
            "certain becomes a plan named auto. full searches all other shuffles of torch as well, which "
            "takes hundreds of seconds of processor time, on a quarter of the processors. Either "
            "search runs when no processor has anything else to do. off watches nobody. In a job of several "
            "nodes each watches its own readers, and tells the others what it finds.",
        .set =
            [](MountOptions& o, const std::string& v) {
              return set_choice(o.infer, v, {"off", "cheap", "full"});
            },
        .get = [](const MountOptions& o) { return Values{o.infer}; }},
    OptionSpec{
        .name = "placement",
        .argument = "clairfs|nopfs",
        .default_text = "clairfs",
        .help = "Which node of a job keeps what",
        .man =
            "clairfs gives every chunk one home before any gets a second holder. nopfs is the rule of the "
            "NoPFS paper, for comparison: every node keeps what it reads most itself, whoever else has it.",
        .set =
            [](MountOptions& o, const std::string& v) {
              return set_choice(o.placement, v, {"clairfs", "nopfs"});
            },
        .get = [](const MountOptions& o) { return Values{o.placement}; }},
    OptionSpec{
        .name = "catalog-dir",
        .argument = "DIR",
        .default_text = "/var/cache/clairfs for root, else $XDG_CACHE_HOME/clairfs or ~/.cache/clairfs",
        .help = "Where the scanned tree is kept for the next mount",
        .man = "Holds the saved catalog of each dataset, and the log files. It is created with mode 0700 if "
               "missing.",
        .set = [](MountOptions& o, const std::string& v) { return set_path(o.catalog_dir, v); },
        .get = [](const MountOptions& o) { return path_value(o.catalog_dir); }},
    OptionSpec{.name = "check",
               .argument = "full|directories",
               .default_text = "full",
               .help = "How a saved catalog is compared with the source",
               .man = "full looks at every entry of the source again; directories only at the directories, "
                      "which is faster "
                      "and misses files rewritten in place until they are read.",
               .set =
                   [](MountOptions& o, const std::string& v) {
                     return set_choice(o.check, v, {"full", "directories"});
                   },
               .get = [](const MountOptions& o) { return Values{o.check}; }},
    OptionSpec{.name = "allow-other",
               .argument = "",
               .default_text = "false",
               .help = "Let other users use the mount",
               .man =
                   "Otherwise only the user who mounted sees the files. Users other than root need the line "
                   "user_allow_other in /etc/fuse.conf. The permissions of the source hold in any case.",
               .set = [](MountOptions& o, const std::string& v) { return set_switch(o.allow_other, v); },
               .get = [](const MountOptions& o) { return switch_value(o.allow_other); }},
    OptionSpec{.name = "ro",
               .argument = "",
               .default_text = "false",
               .help = "Have the kernel refuse writes",
               .man =
                   "No dataset file can be opened for writing in any case. With ro the kernel refuses every "
                   "write, also on an ordinary user's own mount, and then plans can "
                   "be registered neither with setfattr nor by writing to .clairfs/plan.",
               .set = [](MountOptions& o, const std::string& v) { return set_switch(o.read_only, v); },
               .get = [](const MountOptions& o) { return switch_value(o.read_only); }},
    OptionSpec{.name = "noexec",
               .argument = "",
               .default_text = "false",
               .help = "Have the kernel refuse to run programs from the mount",
               .man = "As for any filesystem; nosuid and nodev are always in force.",
               .set = [](MountOptions& o, const std::string& v) { return set_switch(o.no_exec, v); },
               .get = [](const MountOptions& o) { return switch_value(o.no_exec); }},
    OptionSpec{.name = "log-level",
               .argument = "LEVEL",
               .default_text = "info",
               .help = "debug, info, warning, error or off",
               .man = "The least important kind of line that is logged: debug, info, warning, error or off.",
               .set =
                   [](MountOptions& o, const std::string& v) {
                     return set_choice(o.log_level, v, {"debug", "info", "warning", "error", "off"});
                   },
               .get = [](const MountOptions& o) { return Values{o.log_level}; }},
    OptionSpec{
        .name = "log-file",
        .argument = "FILE",
        .default_text = "a file in log/ of the catalog directory; stderr with -f",
        .help = "Where the daemon logs to",
        .man =
            "The log is kept below 8 MiB: at 4 MiB it is renamed to end in .1, and a new one is begun. "
            "In the foreground the lines go to stderr, and to this file only if it is named. Its "
            "directory must exist; a new file is for its owner alone. Nobody waits for a log that hangs: up "
            "to 1 MiB of lines are kept for it. Lines beyond that are lost, as are those that a full disk "
            "does not take, and the next that is written says how many. The end of the mount waits for the "
            "log for at most a second.",
        .set = [](MountOptions& o, const std::string& v) { return set_path(o.log_file, v); },
        .get = [](const MountOptions& o) { return path_value(o.log_file); }},
    OptionSpec{
        .name = "config",
        .argument = "FILE",
        .default_text = "/etc/clairfs.conf, if it is there",
        .help = "Read options from a file",
        .man = "Lines of the form name=value with the names of this list; empty lines and lines that begin "
               "with # are "
               "skipped. Options given elsewhere win over the file; see ENVIRONMENT.",
        .set = [](MountOptions& o, const std::string& v) { return set_path(o.config_file, v); },
        .get = [](const MountOptions& o) { return path_value(o.config_file); }},
};

}  // namespace

std::span<const OptionSpec> option_table() {
  return kTable;
}

const OptionSpec* find_option(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  const auto found =
      std::find_if(kTable.begin(), kTable.end(), [&](const auto& spec) { return spec.name == wanted; });
  return found == kTable.end() ? nullptr : &*found;
}

std::string options_text(const MountOptions& options) {
  std::string text;
  for (const OptionSpec& spec : kTable) {
    if (spec.name == "config") continue;  // its content is what the other lines show
    for (const std::string& value : spec.get(options)) text += fmt::format("{}={}\n", spec.name, value);
  }
  return text;
}

}  // namespace clairfs

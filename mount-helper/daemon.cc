#include "mount-helper/daemon.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "cache/base/plural.h"
#include "cache/blocking_read.h"
#include "cache/catalog_file.h"
#include "cache/chunk_cache.h"
#include "cache/nvme_store.h"
#include "cache/pfs_source.h"
#include "fs/control_commands.h"
#include "fs/control_socket.h"
#include "fs/fuse_session.h"
#include "fs/page_pusher.h"
#include "fs/reports.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/defaults.h"
#include "mount-helper/guard.h"
#include "mount-helper/job_node.h"
#include "mount-helper/logging.h"
#include "mount-helper/option_table.h"
#include "mount-helper/signals.h"
#include "mount-helper/validate.h"
#include "mount-helper/watchdog.h"
#include "plan/next_use_policy.h"
#include "plan/plan_manager.h"
#include "plan/staging.h"

namespace clairfs {
namespace {

// A transfer that has not ended by then never will: the filesystem below hangs, and the process ends anyway.
constexpr auto kDrainPatience = std::chrono::seconds(10);

// The whole of it, drained after reads were given up, and some more for a busy machine. What then still waits
// does so in a system call: a plan's list file on a filesystem that hangs.
constexpr auto kShutDownPatience = 3 * kDrainPatience;

// Whoever sets a plan sleeps in the kernel meanwhile, and where it is an attribute the folder is locked: so
// much for reading long lists, and for what hangs.
constexpr auto kAnswerPatience = std::chrono::seconds(20);

// NVMe devices reach their full rate with a few dozen operations in flight.
constexpr unsigned kNvmeDepth = 32;

/// The parts of one mount, in the order in which they are made; they are taken down in reverse.
class Mount {
 public:
  Mount(const MountOptions& options, const MpiPlace& place, Logger& log)
      : options_(options), place_(place), log_(log) {}

  Status set_up(const ServeEvents& events, SignalWaiter& signals);
  Status serve(std::function<void()> on_unmounted) {
    return session_->start(*context_, std::move(on_unmounted));
  }
  /// Why the job does not want this node any more; empty if it does.
  std::string refusal() const;
  /// Ends the mount. False if a filesystem below hangs, so that nothing may be destroyed.
  bool shut_down();
  /// Leaves threads that wait for such a filesystem where they are.
  [[noreturn]] void end_by_force();

 private:
  Status mount();
  Status join_job(SignalWaiter& signals);
  void end_on_signal(const SignalWaiter& signals);
  Result<LoadedCatalog> load_or_scan(const ServeEvents& events, const SignalWaiter& signals,
                                     const ScanProgress& progress);
  Status load_catalog(const ServeEvents& events, const SignalWaiter& signals);
  Status open_stores();
  Status make_cache();
  void make_plans();
  void add_control_files();

  uint64_t least_source_bytes() const;

  const MountOptions& options_;
  const MpiPlace place_;
  Logger& log_;
  const SteadyClock clock_;
  Metrics metrics_;
  mutable Mutex refusal_mutex_;  // leaf
  std::string refusal_ GUARDED_BY(refusal_mutex_);
  std::unique_ptr<JobNode> job_;  // null on a single node
  MountInfo info_;
  LoadedCatalog loaded_;
  std::unique_ptr<IoBackend> nvme_io_;
  std::vector<std::unique_ptr<NvmeStore>> stores_;
  std::unique_ptr<IoBackend> pfs_io_;
  std::optional<PfsSource> source_;
  std::optional<NextUsePolicy> policy_;
  std::unique_ptr<ChunkCache> cache_;
  std::unique_ptr<PagePusher> pusher_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<PlanManager> plans_;
  std::optional<ControlFiles> control_;
  std::optional<AccessLog> access_log_;
  PendingReads pending_reads_;
  std::optional<FuseContext> context_;
  std::unique_ptr<FuseSession> session_;
  Guard guard_;
  std::unique_ptr<ControlSocket> control_socket_;
  std::unique_ptr<TaskThread> checksums_;
  std::unique_ptr<TaskThread> invalidations_;
  std::unique_ptr<BoundedTasks> control_tasks_;  // the last of them still answer requests of the session
};

// In a job the mount point comes first: making it may fork, and MPI must not be forked. It answers when
// everything else is there.
Status Mount::set_up(const ServeEvents& events, SignalWaiter& signals) {
  info_.source = options_.source;
  info_.mountpoint = options_.mountpoint;
  info_.log_file = log_file_of(options_);
  info_.pid = ::getpid();
  info_.started = std::chrono::steady_clock::now();
  if (place_.size > 1) {
    if (Status mounted = mount(); !mounted) return mounted;
    if (Status joined = join_job(signals); !joined) return joined;
  }
  if (Status loaded = load_catalog(events, signals); !loaded) return loaded;
  if (Status opened = open_stores(); !opened) return opened;
  if (Status made = make_cache(); !made) return made;
  make_plans();
  auto socket =
      ControlSocket::open([this](std::string_view c) { return run_control_command(*plans_, c); }, log_);
  if (!socket) return socket.error();
  control_socket_ = std::move(*socket);
  info_.control_socket = control_socket_->name();
  add_control_files();

  control_tasks_ = std::make_unique<BoundedTasks>("control-tasks", kAnswerPatience);
  invalidations_ = std::make_unique<TaskThread>("invalidations");
  checksums_ = std::make_unique<TaskThread>("checksums");
  access_log_.emplace(*loaded_.catalog);
  context_.emplace(FuseContext{*loaded_.catalog, *cache_, *control_, *access_log_, pending_reads_,
                               *control_tasks_, *invalidations_, *checksums_, *plans_, staging_->tails(),
                               clock_, metrics_, log_});
  if (job_) context_->placement = [this] { return job_->placement(); };
  if (!session_) {
    if (Status mounted = mount(); !mounted) return mounted;
  }
  if (job_) {
    job_->serve(*cache_);
    job_->follow(*plans_);
  }
  pusher_->connect(session_->device());
  return {};
}

Status Mount::mount() {
  FuseOptions fuse;
  fuse.source = options_.source;
  fuse.mountpoint = options_.mountpoint;
  fuse.allow_other = options_.allow_other;
  fuse.kernel_read_only = options_.read_only;
  fuse.no_exec = options_.no_exec;
  fuse.threads = options_.fuse_threads;
  auto session = FuseSession::mount(fuse, log_);
  if (!session) return session.error();
  session_ = std::move(*session);
  if (const Status guarded = guard_.start(options_.mountpoint); !guarded)
    log_.warn("{}: should this process be killed, readers may wait for ever", guarded.error().message);
  return {};
}

Status Mount::join_job(SignalWaiter& signals) {
  if (!options_.peers) return {};
  JobNode::Parts parts{place_, options_, clock_, metrics_, log_, {}, {}, {}};
  parts.waiting = [this, &signals] { end_on_signal(signals); };
  parts.refused = [this, &signals](const std::string& why) {
    {
      MutexLock lock(refusal_mutex_);
      refusal_ = why;
    }
    signals.notify();
  };
  parts.abandon = [this] {
    guard_.abort();
    session_->stop();
  };
  auto job = JobNode::connect(std::move(parts));
  if (!job) return job.error();
  job_ = std::move(*job);
  return {};
}

std::string Mount::refusal() const {
  MutexLock lock(refusal_mutex_);
  return refusal_;
}

// While nothing is served or half-written yet: what is waited for then, a scan or the other nodes, can take
// minutes.
void Mount::end_on_signal(const SignalWaiter& signals) {
  const int signal = signals.pending();
  if (signal == 0) return;
  guard_.stop();
  session_->stop();  // MPI's end of this process may be doing the same
  std::_Exit(128 + signal);
}

Result<LoadedCatalog> Mount::load_or_scan(const ServeEvents& events, const SignalWaiter& signals,
                                          const ScanProgress& progress) {
  CatalogOptions catalog;
  catalog.scan.chunk_size = static_cast<uint32_t>(options_.chunk);
  catalog.directory = options_.catalog_dir;
  catalog.check = options_.check == "directories" ? CatalogCheck::directories : CatalogCheck::full;
  return load_or_scan_catalog(options_.source, catalog, log_, [&](uint64_t entries) {
    end_on_signal(signals);
    events.progress(fmt::format("scanning {}: {}", options_.source, counted(entries, "entry", "entries")));
    if (progress) progress(entries);
  });
}

Status Mount::load_catalog(const ServeEvents& events, const SignalWaiter& signals) {
  const auto load = [&](const ScanProgress& progress) { return load_or_scan(events, signals, progress); };
  auto loaded = job_ ? job_->catalog(load, events.progress) : load({});
  if (!loaded) return loaded.error();
  loaded_ = std::move(*loaded);
  const Catalog& c = *loaded_.catalog;
  metrics_.catalog_files.set(c.count(Catalog::Kind::file));
  metrics_.catalog_directories.set(c.count(Catalog::Kind::directory));
  metrics_.catalog_bytes.set(static_cast<int64_t>(c.total_bytes()));
  metrics_.catalog_memory_bytes.set(static_cast<int64_t>(c.memory_bytes()));
  metrics_.catalog_skipped.set(static_cast<int64_t>(c.skipped_special()));
  metrics_.catalog_unreadable.set(static_cast<int64_t>(c.unreadable()));
  info_.catalog_origin = loaded_.reloaded   ? fmt::format("reloaded in {:.2f} s", loaded_.seconds)
                         : loaded_.received ? fmt::format("{} in {:.2f} s", loaded_.reason, loaded_.seconds)
                                            : fmt::format("scanned in {:.2f} s", loaded_.seconds);
  if (!loaded_.reloaded && !loaded_.received) info_.catalog_reason = loaded_.reason;
  return {};
}

Status Mount::open_stores() {
  if (options_.nvme.empty()) return {};
  auto io = make_io_backend({options_.io, kNvmeDepth, "nvme-io"}, log_);
  if (!io) return io.error();
  nvme_io_ = std::move(*io);
  const uint64_t mean_chunk = round_to_pages(mean_chunk_bytes(*loaded_.catalog));
  for (const NvmeDir& directory : options_.nvme) {
    auto store =
        NvmeStore::open({directory.directory, directory.capacity, mean_chunk}, *nvme_io_, log_, metrics_);
    if (!store) return store.error();
    stores_.push_back(std::move(*store));
    info_.nvme_directories.push_back(directory.directory);
  }
  return {};
}

Status Mount::make_cache() {
  auto io = make_io_backend({options_.io, options_.pfs_concurrency, "pfs-io"}, log_);
  if (!io) return io.error();
  pfs_io_ = std::move(*io);
  info_.io_backend = pfs_io_->kind();

  Fd root(::open(options_.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return system_error(errno, "open " + options_.source);
  PfsOptions pfs;
  pfs.most_concurrency = options_.pfs_concurrency;
  // The saved catalog is wrong about a file that turns out changed: the next mount scans anew.
  source_.emplace(*loaded_.catalog, std::move(root), *pfs_io_, pfs, clock_, metrics_, log_, [this](FileId) {
    if (const Status gone = invalidate_saved_catalog(loaded_.saved_file); !gone)
      log_.warn("{}", gone.error().message);
  });

  policy_.emplace(*loaded_.catalog);
  ChunkSource& source = job_ ? job_->make_source(*loaded_.catalog, *source_) : *source_;
  TierPolicy& policy = job_ ? job_->policy(*policy_) : *policy_;
  ChunkCache::Parts parts{*loaded_.catalog, source, {}, policy, metrics_, log_};
  for (const auto& store : stores_) parts.stores.push_back(store.get());
  parts.verify_warm_files = (loaded_.reloaded || loaded_.received) && options_.check == "directories";
  auto cache = ChunkCache::create(parts, options_.ram);
  if (!cache) return cache.error();
  cache_ = std::move(*cache);
  return {};
}

void Mount::make_plans() {
  pusher_ = std::make_unique<PagePusher>(*loaded_.catalog, options_.mountpoint, metrics_);
  staging_ = std::make_unique<Staging>(*cache_, *policy_, *loaded_.catalog, *pusher_, clock_, metrics_,
                                       StagingOptions{options_.staging});
  DatasetSource dataset;
  dataset.catalog = loaded_.catalog;
  dataset.prefixes.source = options_.source;
  dataset.prefixes.mount = options_.mountpoint;
  dataset.read_bytes = [this](FileId file, uint64_t offset, uint32_t length) {
    return read_bytes(*cache_, *loaded_.catalog, file, offset, length);
  };
  PlanManager::Parts parts{
      std::move(dataset), NodePlace{place_.self, place_.size}, *staging_, clock_, metrics_, log_};
  if (job_) {
    parts.announce = [this](const PlanNews& news) { job_->announce(news); };
    job_->make_placement(*cache_);
    parts.placement = &job_->job_placement();
  }
  plans_ = std::make_unique<PlanManager>(std::move(parts));
}

void Mount::add_control_files() {
  control_.emplace(::time(nullptr));
  std::string config = options_text(options_);
  const auto status = [this](const MountInfo& info, const std::string& plans) {
    return status_text(info, metrics_, plans, job_ ? job_->status_text(least_source_bytes()) : "");
  };
  MountInfo for_others = info_;
  for_others.catalog_reason.clear();
  const auto stats = [this](const std::string& plans) {
    return stats_json(info_, metrics_, plans, job_ ? job_->json(least_source_bytes()) : "{}");
  };
  control_->add({"status",
                 0444,
                 [this, status] { return status(info_, plans_->text()); },
                 {},
                 [status, for_others] { return status(for_others, ""); }});
  control_->add({"stats.json",
                 0444,
                 [this, stats] { return stats(plans_->json()); },
                 {},
                 [stats] { return stats("[]"); }});
  control_->add({"peers", 0444, [this]() -> std::string {
                   if (job_) return job_->peers_text();
                   return !options_.peers ? "--peers off: this node has a cache of its own\n"
                                          : "a single node: no mpiexec or srun started others\n";
                 }});
  control_->add({"metrics", 0444, [this] { return prometheus_text(metrics_); }});
  control_->add({"config", 0400, [config = std::move(config)] { return config; }});
  control_->add({"plan", 0600, [this] { return plans_->text(); },
                 [this](std::string_view text) { return write_plan_file(*plans_, text); }});
  control_->add({"last_error", 0400, [this] { return plans_->last_error(); }});
  control_->add({"accesslog", 0400, [this] { return access_log_->text(); }});
}

uint64_t Mount::least_source_bytes() const {
  return job_ ? plans_->least_source_bytes(job_->job_placement().homeless_bytes()) : 0;
}

// What calls into the mount ends while FUSE threads still answer it; what answers requests ends after them.
// When the source hangs, a push may sleep in the kernel on a page of a READ that waits for it.
bool Mount::shut_down() {
  const Watchdog watchdog(kDrainPatience, [this] {
    log_.error("the mount does not come to rest; reads that still wait fail");
    pending_reads_.give_up();
  });
  const Watchdog last(kShutDownPatience, [this] { end_by_force(); });
  control_socket_.reset();
  if (plans_) plans_->stop();
  if (staging_) staging_->stop();
  if (session_) session_->stop();
  if (pusher_) pusher_->connect(-1);
  control_tasks_.reset();
  invalidations_.reset();
  checksums_.reset();
  if (job_) job_->leave(refusal());
  const bool at_rest = !cache_ || cache_->stop(kDrainPatience);
  if (job_) job_->stop();
  if (at_rest) guard_.stop();
  return at_rest;
}

void Mount::end_by_force() {
  guard_.abort();
  if (session_) {
    session_->detach();
    session_->let_go();
  }
  log_.error("a filesystem below {} does not answer; ending without waiting for it", options_.mountpoint);
  log_.flush();
  std::_Exit(exit_system);
}

void warn(const std::vector<std::string>& lines, const MountOptions& options, Logger& log) {
  for (const std::string& line : lines) {
    log.warn("{}", line);
    if (!options.foreground) fmt::print(stderr, "clairfs: warning: {}\n", line);
  }
}

int serve_mount(Mount& mount, const MountOptions& options, Logger& log, const ServeEvents& events,
                SignalWaiter& signals) {
  const auto doubts = doubts_about(options, available_memory(this_machine()));  // before the mount hides them
  Status ready = mount.set_up(events, signals);
  if (ready) ready = mount.serve([&] { signals.notify(); });
  if (ready) warn(doubts, options, log);  // a failure is one line alone
  events.ready(ready);
  if (ready) {
    log.info("mounted {} on {}", options.source, options.mountpoint);
    const int signal = signals.wait();
    log.info("{} {}", signal != 0 ? fmt::format("signal {}: unmounting", signal) : "unmounted",
             options.mountpoint);
  }
  if (!mount.shut_down()) mount.end_by_force();
  if (!mount.refusal().empty()) return exit_system;
  return ready ? exit_success : exit_mount_failure;
}

}  // namespace

int serve(const MountOptions& options, Logger& log, const ServeEvents& events) {
  SignalWaiter signals;
  const auto place = mpi_place();
  if (!place) {
    events.ready(place.error());
    return exit_usage;
  }
  int status = exit_success;
  {
    Mount mount(options, *place, log);
    status = serve_mount(mount, options, log, events, signals);
  }
  if (place->size > 1) {
    // MPI is never finalised, and leaves threads of its own behind that exit() does not always survive.
    log.flush();
    std::fflush(nullptr);
    std::_Exit(status);
  }
  return status;
}

}  // namespace clairfs

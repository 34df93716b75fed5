#include "mount-helper/serve/serving.h"

#include <ctime>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "cache/base/units.h"
#include "cache/chunks/blocking_read.h"
#include "fs/control/commands.h"
#include "fs/control/prometheus.h"
#include "fs/control/residency.h"
#include "mount-helper/log/logging.h"
#include "mount-helper/options/option_table.h"
#include "mount-helper/options/version.h"
#include "mount-helper/serve/bench_switches.h"
#include "net/mpi/job_environment.h"
#include "plan/formats/source_reads.h"

namespace clairfs {
namespace {

// A process that sets a plan sleeps in the kernel meanwhile, and where it is an attribute the folder is
// locked: so much for reading long lists, and for what hangs.
constexpr auto kAnswerPatience = std::chrono::seconds(20);

std::unique_ptr<NodePlacement> make_placement(const MountBase& base, Loaded& loaded) {
  Dataset& dataset = loaded.dataset();
  if (!dataset.shared) return nullptr;
  return std::make_unique<NodePlacement>(*dataset.shared, dataset.catalog, loaded.cache(), base);
}

IndexPeers* index_peers(Loaded& loaded) {
  const auto& shared = loaded.dataset().shared;
  return shared ? &shared->node.job().index_peers() : nullptr;
}

PlanManager::Deps plan_deps(MountBase& base, Loaded& loaded, Planning& planning) {
  DatasetSource dataset;
  dataset.catalog = loaded.dataset().loaded.catalog;
  dataset.prefixes.source = base.options.source;
  dataset.prefixes.mount = base.options.mountpoint;
  dataset.read_bytes = [&loaded](FileId file, uint64_t offset, uint32_t length) {
    return read_bytes(loaded.cache(), loaded.dataset().catalog, file, offset, length);
  };
  dataset.read_many = [&loaded](std::span<const ByteRange> pieces) {
    return read_pieces(loaded.cache(), loaded.dataset().catalog, loaded.dataset().pfs, pieces);
  };
  dataset.indexes = &planning.indexes;
  PlanManager::Deps deps{std::move(dataset), base.place,   planning.staging,
                         base.clock,         base.metrics, base.log};
  deps.infer = base.options.infer == "off"    ? InferMode::off
               : base.options.infer == "full" ? InferMode::full
                                              : InferMode::cheap;
  deps.order_file =
      fmt::format("{}/found/{}@{}.list", base.options.catalog_dir, ::getpid(), short_host_name());
  deps.saved_orders =
      saved_orders_path(base.options.catalog_dir, std::string(deps.dataset.catalog->source()));
  if (NodePlacement* placement = planning.placement.get()) {
    deps.announce = [placement](const PlanChange& change) { return placement->announce(change); };
    deps.placement = &placement->placement_manager();
  }
  return deps;
}

MountInfo describe(const MountBase& base, const Dataset& dataset, const std::string& control_socket) {
  const LoadedCatalog& loaded = dataset.loaded;
  MountInfo info;
  info.source = base.options.source;
  info.mountpoint = base.options.mountpoint;
  info.commit = commit_id();
  info.io_backend = dataset.pfs_io->kind();
  info.catalog_origin = loaded.reloaded   ? fmt::format("reloaded in {:.2f} s", loaded.seconds)
                        : loaded.received ? fmt::format("{} in {:.2f} s", loaded.reason, loaded.seconds)
                                          : fmt::format("scanned in {:.2f} s", loaded.seconds);
  if (!loaded.reloaded && !loaded.received) info.catalog_reason = loaded.reason;
  info.log_file = log_file_of(base.options);
  for (const NvmeDir& nvme : base.options.nvme)
    info.nvme_directories.push_back(
        fmt::format("{}, at most {}", nvme.directory, format_size(nvme.capacity)));
  info.control_socket = control_socket;
  info.pid = ::getpid();
  info.started = base.started;
  return info;
}

}  // namespace

Planning::Planning(MountBase& base, Loaded& loaded, const FuseSession& session)
    : pusher(loaded.dataset().catalog, base.options.mountpoint, session.device(),
             at_work("leaving") ? &base.mount_point.pending_reads().asked() : nullptr, base.metrics),
      staging(loaded.cache(), loaded.dataset().policy, loaded.dataset().catalog, pusher, base.metrics,
              StagingOptions{base.options.staging, base.options.page_cache, at_work("order")}),
      staging_thread("staging", staging.alarm(), base.clock,
                     [this](TimePoint now) { return staging.step(now); }),
      indexes(base.options.catalog_dir + "/index", base.log, index_peers(loaded)),
      placement(make_placement(base, loaded)),
      plans(plan_deps(base, loaded, *this)) {}

uint64_t Planning::least_source_bytes() const {
  if (!placement) return 0;
  return plans.least_source_bytes(placement->placement_manager().homeless_bytes(), placement->stocks());
}

std::shared_ptr<const PlacementMap> Planning::current_placement() const {
  return placement ? placement->current() : nullptr;
}

struct Serving::Tasks {
  TaskThread checksums{"checksums"};
  TaskThread invalidations{"invalidations"};
  BoundedTasks control{"control-tasks", kAnswerPatience};  // ends first
};

Result<std::unique_ptr<Serving>> Serving::prepare(MountBase& base, Loaded& loaded) {
  auto session = base.mount_point.mount();
  if (!session) return session.error();
  auto planning = std::make_unique<Planning>(base, loaded, **session);
  auto socket = ControlSocket::open(
      [&loaded, &planned = *planning](std::string_view command) -> Result<std::string> {
        const auto where = [&planned] { return planned.current_placement(); };
        auto answer = run_residency_command(loaded.dataset().catalog, loaded.cache(), where, command);
        return answer ? std::move(*answer) : run_control_command(planned.plans, command);
      },
      base.log);
  if (!socket) return socket.error();
  return std::unique_ptr<Serving>(
      new Serving(base, loaded, **session, std::move(planning), std::move(*socket)));
}

Serving::Serving(MountBase& base, Loaded& loaded, FuseSession& session, std::unique_ptr<Planning> planning,
                 std::unique_ptr<ControlSocket> control_socket)
    : base_(base),
      loaded_(loaded),
      session_(session),
      planning_(std::move(planning)),
      plans_(planning_->plans),
      control_socket_(std::move(control_socket)),
      info_(describe(base, loaded.dataset(), control_socket_->name())),
      first_unreadable_(loaded.dataset().catalog.unreadable() > 0 ? first_unreadable(loaded.dataset().catalog)
                                                                  : ""),
      control_(::time(nullptr)),
      access_log_(loaded.dataset().catalog),
      failed_reads_(loaded.dataset().catalog),
      dirty_pages_(loaded.dataset().catalog, base.clock, base.log),
      tasks_(std::make_unique<Tasks>()),
      context_{loaded.dataset().catalog,
               loaded.cache(),
               control_,
               access_log_,
               failed_reads_,
               base.mount_point.pending_reads(),
               tasks_->control,
               tasks_->invalidations,
               tasks_->checksums,
               plans_,
               planning_->staging.sentinels(),
               dirty_pages_,
               planning_->pusher.readahead(),
               base.clock,
               base.metrics,
               base.log,
               session,
               [&planned = *planning_] { return planned.current_placement(); }},
      history_thread_("history", history_alarm_, base.clock, [this](TimePoint) { return keep_history(); }) {
  add_reports();
  add_control_files();
}

// What calls into the mount ends while FUSE threads still answer it; what answers requests ends after them.
// Nothing is destroyed before all is at rest, since answers that are on their way use it.
Serving::~Serving() {
  base_.mount_point.begin_end();
  history_thread_.stop();
  control_socket_.reset();
  plans_.stop();
  planning_->staging_thread.stop();
  planning_->staging.stop();
  base_.mount_point.stop();
  tasks_.reset();
  if (planning_->placement) planning_->placement->stop();
  loaded_.finish();
}

Status Serving::start() {
  if (planning_->placement) planning_->placement->serve(planning_->indexes, plans_);
  const Status started = session_.start(context_, [&signals = base_.signals] { signals.notify(); });
  history_alarm_.ring();
  return started;
}

Turn Serving::keep_history() {
  uint64_t ahead = 0;
  for (const PlanBrief& plan : plans_.briefs()) ahead += plan.ahead;
  const std::chrono::duration<double> up = std::chrono::steady_clock::now() - info_.started;
  return {false, history_.add(history_row(base_.metrics, up.count(), ahead))};
}

std::vector<Trouble> Serving::troubles() const {
  TroubleNames names;
  names.unreadable = first_unreadable_;
  names.failed_read = failed_reads_.first_failed();
  names.refused_read = failed_reads_.first_refused();
  names.dirty_writer = dirty_pages_.text();
  PfsTroubles source = loaded_.dataset().pfs.troubles();
  names.source_error = std::move(source.failed);
  names.stale = std::move(source.stale);
  names.silent = std::move(source.silent);
  for (const auto& store : loaded_.dataset().nvme.stores) {
    const NvmeTroubles nvme = store->troubles();
    const auto add = [&](std::vector<std::string>& directories, const std::string& why) {
      if (!why.empty()) directories.push_back(fmt::format("{}: {}", store->directory(), why));
    };
    if (nvme.disk_full) names.full_disks.push_back(store->directory());
    add(names.nvme_silent, nvme.silent);
    add(names.nvme_cut_short, nvme.cut_short);
    add(names.nvme_errors, nvme.error);
    add(names.nvme_damaged, nvme.damage);
    add(names.nvme_disabled, nvme.switched_off);
  }
  return list_troubles(base_.metrics, plans_.briefs(), names);
}

// Users who may not control the mount learn no names of files and plans.
void Serving::add_reports() {
  const auto for_others = [this] {
    // Counts what hangs.
    (void)loaded_.dataset().pfs.troubles();
    for (const auto& store : loaded_.dataset().nvme.stores) (void)store->troubles();
    return without_names(base_.metrics, plans_.briefs());
  };
  const auto status = [this](const MountInfo& info, const std::string& plans,
                             const std::vector<Trouble>& troubles) {
    const NodePlacement* placement = planning_->placement.get();
    return status_text(info, base_.metrics, plans,
                       placement ? placement->status_text(planning_->least_source_bytes()) : "", troubles);
  };
  MountInfo info_for_others = info_;
  info_for_others.catalog_reason.clear();
  const auto stats = [this](const std::string& plans, const std::vector<Trouble>& troubles) {
    const NodePlacement* placement = planning_->placement.get();
    return stats_json(info_, base_.metrics, plans,
                      placement ? placement->json(planning_->least_source_bytes()) : "{}", troubles);
  };
  control_.add({"status",
                0444,
                [this, status] { return status(info_, plans_.text(), troubles()); },
                {},
                [status, info_for_others, for_others] { return status(info_for_others, "", for_others()); }});
  control_.add({"stats.json",
                0444,
                [this, stats] { return stats(plans_.json(), troubles()); },
                {},
                [stats, for_others] { return stats("[]", for_others()); }});
  control_.add({"metrics",
                0444,
                [this] { return prometheus_text(info_, base_.metrics, plans_.briefs(), troubles()); },
                {},
                [this, for_others] { return prometheus_text(info_, base_.metrics, {}, for_others()); }});
}

void Serving::add_control_files() {
  std::string hint = base_.place.size == 1 ? hint_at_other_nodes() : "";
  if (!hint.empty()) hint += "\n";
  control_.add({"peers", 0444, [this, hint = std::move(hint)]() -> std::string {
                  if (const auto& shared = loaded_.dataset().shared) return shared->peers_text();
                  if (!base_.options.peers) return "--peers off: this node has a cache of its own\n";
                  return "a single node: no mpiexec or srun started others, nor did --job name any\n" + hint;
                }});
  control_.add({"history", 0444, [this] { return history_.csv(); }});
  control_.add({"config", 0400, [config = options_text(base_.options)] { return config; }});
  control_.add({"plan", 0600, [this] { return plans_.text(); },
                [this](std::string_view text, std::string_view before) {
                  return write_plan_file(plans_, text, before);
                }});
  control_.add({"last_error", 0400, [this] { return plans_.last_error(); }});
  control_.add({"accesslog", 0400, [this] { return access_log_.text(); }});
}

}  // namespace clairfs

// Extended attributes: what the cache knows of a file, and the plans of a folder or of all, as
// user.clairfs.*. The
// source's own attributes are not shown: each would cost an operation on the PFS.
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <linux/limits.h>

#include "cache/base/checksum.h"
#include "fs/ops/operations.h"

namespace clairfs {
namespace {

constexpr std::string_view kTier = "user.clairfs.tier";
constexpr std::string_view kChecksum = "user.clairfs.checksum";
constexpr std::string_view kHome = "user.clairfs.home";
constexpr std::string_view kNextUse = "user.clairfs.next_use";
constexpr std::string_view kPlan = "user.clairfs.plan";

void reply_value(fuse_req_t req, std::string_view value, size_t size) {
  if (size == 0) return void(fuse_reply_xattr(req, value.size()));
  if (size < value.size()) return void(fuse_reply_err(req, ERANGE));
  fuse_reply_buf(req, value.data(), value.size());
}

// "ram", "nvme", "none"; with the numbers of chunks where a file is in several: "ram=3 nvme=1 none=0".
std::string tier_text(const FuseContext& context, FileId file) {
  const Catalog::Chunks chunks = context.catalog.chunks(file);
  std::array<uint32_t, 3> count{};
  for (uint32_t i = 0; i < chunks.count; ++i) {
    ++count[static_cast<size_t>(context.cache.tier_of(ChunkId(chunks.first.value + i)))];
  }
  const auto in = [&](Tier tier) { return count[static_cast<size_t>(tier)]; };
  if (in(Tier::ram) == chunks.count) return "ram";
  if (in(Tier::nvme) == chunks.count) return "nvme";
  if (in(Tier::none) == chunks.count) return "none";
  return fmt::format("ram={} nvme={} none={}", in(Tier::ram), in(Tier::nvme), in(Tier::none));
}

// "node 2 ram", "none"; with the chunks of a large file one after the other, separated by commas. Empty
// where there is no placement.
std::string home_text(const FuseContext& context, FileId file) {
  const auto placement = context.placement();
  if (!placement) return "";
  const Catalog::Chunks chunks = context.catalog.chunks(file);
  std::string text;
  for (uint32_t i = 0, next = 0; i < chunks.count; i = next) {
    const auto home_of = [&](uint32_t n) { return placement->home(ChunkId(chunks.first.value + n)); };
    const auto home = home_of(i);
    for (next = i + 1; next < chunks.count && home_of(next) == home;) ++next;
    if (i > 0) text += ",";
    text +=
        home ? fmt::format("node {} {}", home->node.value, home->tier == Tier::ram ? "ram" : "nvme") : "none";
    if (next > i + 1) text += fmt::format(" x {}", next - i);
    if (text.size() > XATTR_SIZE_MAX) return "";  // no attribute can be longer
  }
  return text;
}

// A chunk that has not come by then is given up: other files' checksums wait behind it. Whatever is fetched
// ahead, its turn comes after half of that.
constexpr auto kChunkPatience = std::chrono::minutes(1);

// The file goes through the cache chunk by chunk; waiting in slices lets an unmount interrupt it.
Result<std::string> checksum_text(const FuseContext& context, FileId file,
                                  const std::atomic<bool>& stopping) {
  Xxh3Stream stream;
  const Catalog::Chunks chunks = context.catalog.chunks(file);
  for (uint32_t i = 0; i < chunks.count; ++i) {
    const auto promise = std::make_shared<std::promise<Result<AcquiredChunk>>>();
    auto future = promise->get_future();
    context.cache.acquire(
        ChunkId(chunks.first.value + i),
        Priority{Priority::Kind::prefetch, deadline_at(context.clock.now() + kChunkPatience / 2)},
        [promise](Result<AcquiredChunk> chunk) { promise->set_value(std::move(chunk)); });
    const auto deadline = std::chrono::steady_clock::now() + kChunkPatience;
    while (future.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (stopping) return Error{EINTR, "the mount is being shut down"};
      if (std::chrono::steady_clock::now() > deadline) return Error{ETIMEDOUT, "the source does not answer"};
    }
    const auto chunk = future.get();
    if (!chunk) return chunk.error();
    stream.add(chunk->data->block.slices(0, chunk->data->length));
  }
  return fmt::format("xxh3:{:016x}", stream.digest());
}

void reply_plan(fuse_req_t req, const std::string& text, size_t size) {
  if (text.empty()) return void(fuse_reply_err(req, ENODATA));
  reply_value(req, text, size);
}

void reply_checksum(fuse_req_t req, FileId file, size_t size) {
  FuseContext& context = context_of(req);
  if (size == 0) return void(fuse_reply_xattr(req, std::string_view("xxh3:0123456789abcdef").size()));
  context.checksums.post([req, &context, file, size](const std::atomic<bool>& stopping) {
    const auto text = checksum_text(context, file, stopping);
    if (!text) return void(fuse_reply_err(req, text.error().code));
    reply_value(req, *text, size);
  });
}

// The value of an attribute that is there already; empty if there is none.
std::string attribute(const FuseContext& context, FileId id, std::string_view name) {
  switch (context.catalog.kind(id)) {
    case Catalog::Kind::file:
      if (name == kTier) return tier_text(context, id);
      if (name == kHome) return home_text(context, id);
      if (name == kNextUse) return context.plans.next_use(id);
      return "";
    case Catalog::Kind::directory:
      return name == kPlan ? context.plans.text_of_folder(context.catalog.path(id)) : "";
    case Catalog::Kind::symlink:
      return "";
  }
  return "";
}

void getxattr(fuse_req_t req, fuse_ino_t inode, const char* name, size_t size) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_getxattr.add();
  // No ACLs, labels and capabilities: told so, and not "none here", ls does not ask for them of every file.
  if (!std::string_view(name).starts_with("user.")) return void(fuse_reply_err(req, EOPNOTSUPP));
  // A plan names files, also those in folders that are closed to others.
  if (name == kPlan && !may_control(req)) return void(fuse_reply_err(req, ENODATA));
  if (name == kPlan && writable_control_file(context, inode) != nullptr)
    return reply_plan(req, context.plans.texts(), size);
  const auto file = file_of(context.catalog, inode);
  if (!file) return void(fuse_reply_err(req, ENODATA));
  if (name == kChecksum && context.catalog.kind(*file) == Catalog::Kind::file) {
    return reply_checksum(req, *file, size);
  }
  const std::string value = attribute(context, *file, name);
  if (value.empty()) return void(fuse_reply_err(req, ENODATA));
  reply_value(req, value, size);
}

void listxattr(fuse_req_t req, fuse_ino_t inode, size_t size) {
  FuseContext& context = context_of(req);
  context.metrics.fuse_listxattr.add();
  const auto file = file_of(context.catalog, inode);
  std::string names;
  const bool has_plan = may_control(req) && (writable_control_file(context, inode) != nullptr
                                                 ? !context.plans.texts().empty()
                                                 : file && !attribute(context, *file, kPlan).empty());
  // Those of files are told to who asks for them by name: what copies all attributes would take them along,
  // and a checksum has to be computed.
  if (has_plan) names.append(kPlan).push_back('\0');
  reply_value(req, names, size);
}

// Carries out a change of plans where it may wait, and answers.
void change_plans(fuse_req_t req, std::function<Status(PlanManager&)> change) {
  FuseContext& context = context_of(req);
  context.control_tasks.post(
      [&context, change = std::move(change)] { return change(context.plans); },
      [req](const Status& status) { fuse_reply_err(req, status ? 0 : status.error().code); });
}

// What the plan of a request is set on: a dataset folder, or the plan file, which is no folder.
struct PlanTarget {
  std::string folder;
  bool is_file = false;
};

// None: it has been answered, with EROFS or EPERM.
std::optional<PlanTarget> plan_target(fuse_req_t req, fuse_ino_t inode, std::string_view name) {
  FuseContext& context = context_of(req);
  std::optional<PlanTarget> target;
  const auto folder = file_of(context.catalog, inode);
  if (writable_control_file(context, inode) != nullptr) {
    target = {.folder = "", .is_file = true};
  } else if (folder && context.catalog.kind(*folder) == Catalog::Kind::directory) {
    target = {.folder = context.catalog.path(*folder)};
  }
  if (!target || name != kPlan) {
    refuse(req);
    return std::nullopt;
  }
  if (may_control(req)) return target;
  fuse_reply_err(req, EPERM);
  return std::nullopt;
}

void setxattr(fuse_req_t req, fuse_ino_t inode, const char* name, const char* value, size_t size, int) {
  context_of(req).metrics.fuse_setxattr.add();
  const auto target = plan_target(req, inode, name);
  if (!target) return;
  change_plans(req, [text = std::string(value, size), target](PlanManager& plans) -> Status {
    const auto submitted = plans.submit(text, target->folder);
    return submitted ? Status() : Status(submitted.error());
  });
}

void removexattr(fuse_req_t req, fuse_ino_t inode, const char* name) {
  context_of(req).metrics.fuse_setxattr.add();
  const auto target = plan_target(req, inode, name);
  if (!target) return;
  change_plans(req, [target](PlanManager& plans) {
    return target->is_file ? plans.cancel_all() : plans.cancel_folder(target->folder);
  });
}

}  // namespace

void set_xattr_operations(fuse_lowlevel_ops& ops) {
  ops.getxattr = getxattr;
  ops.listxattr = listxattr;
  ops.setxattr = setxattr;
  ops.removexattr = removexattr;
}

}  // namespace clairfs

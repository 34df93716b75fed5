#include "plan/inference/saved_orders.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <xxhash.h>

#include "cache/base/escaped.h"
#include "cache/base/own_file.h"
#include "plan/inference/search/candidates.h"
#include "plan/inference/seeds/default_generator.h"

namespace clairfs {
namespace {

// A line with this and a checksum; then the source's path and texts of plans, each ended by a NUL.
constexpr std::string_view kOrdersMagic = "clairfs orders 1 ";
constexpr size_t kOrdersHeader = kOrdersMagic.size() + 2 * 16 + 1;

constexpr size_t kMostOrders = 2 * SavedOrders::kMostOfAKind;
constexpr size_t kMostBytes = kOrdersHeader + PATH_MAX + kMostOrders * (kMaxPlanText + 1);

std::string orders_header(std::string_view texts) {
  const XXH128_hash_t hash = XXH3_128bits(texts.data(), texts.size());
  return fmt::format("{}{:016x}{:016x}\n", kOrdersMagic, hash.high64, hash.low64);
}

// What is the same plan in another epoch of its job, or of a job of another size.
bool is_same_but_for_place(PlanSpec a, PlanSpec b) {
  for (PlanSpec* plan : {&a, &b}) {
    plan->forget_place();
    plan->world = plan->ranks_per_node = plan->batch = plan->workers = 0;
  }
  return a == b;
}

Result<std::vector<PlanSpec>> parse_orders(std::string_view bytes) {
  std::string_view texts = bytes.substr(std::min(kOrdersHeader, bytes.size()));
  if (bytes.substr(0, bytes.size() - texts.size()) != orders_header(texts))
    return Error{EBADMSG, "cut off, or not of orders"};
  std::vector<PlanSpec> orders;
  for (size_t number = 0; !texts.empty(); ++number) {
    const size_t end = texts.find('\0');
    if (end == std::string_view::npos || number > kMostOrders) return Error{EBADMSG, "not as it was written"};
    if (number > 0) {  // the first text is the source
      if (auto order = parse_plan(texts.substr(0, end))) orders.push_back(std::move(*order));
    }
    texts.remove_prefix(end + 1);
  }
  return orders;
}

}  // namespace

Result<std::vector<PlanSpec>> SavedOrders::read() const {
  if (file_.empty()) return std::vector<PlanSpec>();
  const auto opened = open_own_file(file_);
  if (!opened && opened.error().code == ENOENT) return std::vector<PlanSpec>();
  if (!opened) return opened.error();
  if (opened->size == 0 || opened->size > kMostBytes)
    return Error{EBADMSG, escaped(file_) + ": empty or too large"};
  std::string bytes(opened->size, '\0');
  if (const Status read = read_own_file(*opened, std::as_writable_bytes(std::span(bytes))); !read)
    return read.error();
  auto orders = parse_orders(bytes);
  if (!orders) return Error{EBADMSG, fmt::format("{}: {}", escaped(file_), orders.error().message)};
  return orders;
}

Result<std::vector<PlanSpec>> SavedOrders::load() {
  auto orders = read();
  if (!orders) return orders;
  for (const PlanSpec& order : *orders) {
    auto& kind = is_of_epoch_seed(order) ? of_epochs_ : lasting_;
    if (kind.size() < kMostOfAKind) kind.push_back(order);
  }
  std::reverse(orders->begin(), orders->end());
  return orders;
}

Status SavedOrders::add(PlanSpec order) {
  if (file_.empty() || is_relative_file(order.list) || order.list.starts_with('/')) return {};
  if (goes_by_number(order)) return {};  // it is tried first anyhow, or not suggested
  if (!check_plan_size(format_plan(order))) return {};
  add_those_of_others();
  const bool of_epoch = is_of_epoch_seed(order);
  auto& kind = of_epoch ? of_epochs_ : lasting_;
  const auto known = std::find_if(kind.begin(), kind.end(),
                                  [&](const PlanSpec& other) { return is_same_but_for_place(other, order); });
  const auto here = kind.begin() + static_cast<std::ptrdiff_t>(of_epoch ? here_ : 0);
  const bool complete = of_epoch && (known < here || here_ == kMostOfAKind);
  const bool no_news = complete || (known == here && known != kind.end() && *known == order);
  if (of_epoch && !complete) ++here_;
  if (!no_news) {
    const auto place = here - kind.begin();
    if (known != kind.end()) kind.erase(known);
    kind.insert(kind.begin() + place, std::move(order));
    if (kind.size() > kMostOfAKind) kind.pop_back();
  }
  if (no_news && !unsaved_) return {};
  const Status saved = save();
  unsaved_ = !saved;
  return saved;
}

// What cannot be read is written anew.
void SavedOrders::add_those_of_others() {
  const auto orders = read();
  if (!orders) return;
  for (const PlanSpec& order : *orders) {
    auto& kind = is_of_epoch_seed(order) ? of_epochs_ : lasting_;
    const bool known = std::any_of(
        kind.begin(), kind.end(), [&](const PlanSpec& other) { return is_same_but_for_place(other, order); });
    if (!known && kind.size() < kMostOfAKind) kind.push_back(order);
  }
}

Status SavedOrders::save() const {
  std::string texts = source_ + '\0';
  for (const auto* kind : {&lasting_, &of_epochs_}) {
    for (const PlanSpec& order : *kind) texts += format_plan(order) + '\0';
  }
  const std::string bytes = orders_header(texts) + texts;
  return save_own_file(file_, std::as_bytes(std::span(bytes)));
}

std::string saved_orders_path(const std::string& directory, const std::string& source) {
  const XXH128_hash_t hash = XXH3_128bits(source.data(), source.size());
  return fmt::format("{}/found/orders-{:016x}{:016x}", directory, hash.high64, hash.low64);
}

std::optional<std::string> source_of_saved_orders(std::string_view bytes) {
  if (!bytes.starts_with(kOrdersMagic) || bytes.size() < kOrdersHeader) return std::nullopt;
  bytes.remove_prefix(kOrdersHeader);
  return std::string(bytes.substr(0, bytes.find('\0')));
}

}  // namespace clairfs

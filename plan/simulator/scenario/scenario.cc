#include "plan/simulator/scenario/scenario.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/units.h"
#include "plan/simulator/scenario/text.h"

namespace clairfs {
namespace {

constexpr uint32_t kMostWorkers = 65534;       // a worker is kept in 16 bits
constexpr uint64_t kMostSamples = 2147483645;  // what the nopfs sampler numbers
constexpr uint32_t kMostClasses = 16;
constexpr uint32_t kMostThreads = 4096;  // more is a typing error
constexpr double kMostCapacity = 1e12;   // MB: an exabyte a worker; bytes must fit 64 bits
constexpr double kMostSample = 4096;     // MB: clairfs takes a sample for one chunk, of at most 4 GiB
constexpr size_t kMostText = 1 << 20;    // bytes of a file: a scenario has some thousand

// What is wrong with a value: empty if nothing.
using Complaint = std::string;

Complaint take_number(const ScenarioValue& value, double least, double most, double& out) {
  const double* number = std::get_if<double>(&value);
  if (number == nullptr) return "want a number";
  if (!(*number >= least) || *number > most) {
    if (most == std::numeric_limits<double>::infinity()) return fmt::format("want at least {}", least);
    return fmt::format("want {} to {}", least, most);
  }
  if (!std::isfinite(*number)) return "want a finite number";
  out = *number;
  return "";
}

Complaint take_rate(const ScenarioValue& value, double& out) {
  double rate = 0;
  const Complaint complaint = take_number(value, 0, std::numeric_limits<double>::infinity(), rate);
  if (!complaint.empty() || rate == 0) return "want MB/s above 0";
  out = rate;
  return "";
}

template <class Integer>
Complaint take_count(const ScenarioValue& value, double least, double most, Integer& out) {
  double number = 0;
  Complaint complaint = take_number(value, least, most, number);
  if (!complaint.empty()) return complaint;
  if (number != std::floor(number)) return "want a whole number";
  out = static_cast<Integer>(number);
  return "";
}

// MB, or a size with a suffix.
Complaint take_megabytes(const ScenarioValue& value, double most, double& out) {
  ScenarioValue number = value;
  if (const std::string* text = std::get_if<std::string>(&value)) {
    const auto bytes = parse_size(*text);
    if (!bytes) return R"(want MB as a number, or a size such as "50G")";
    number = static_cast<double>(*bytes) / kMegabyte;
  }
  Complaint complaint = take_number(number, 0, std::numeric_limits<double>::infinity(), out);
  if (complaint.empty() && out > most) complaint = fmt::format("want at most {} MB", most);
  return complaint;
}

Complaint take_milliseconds(const ScenarioValue& value, double& seconds) {
  double milliseconds = 0;
  Complaint complaint = take_number(value, 0, std::numeric_limits<double>::infinity(), milliseconds);
  if (complaint.empty()) seconds = milliseconds / 1000;
  return complaint;
}

Complaint take_table(const ScenarioValue& value, ThroughputTable& out) {
  const NumberTable* pairs = std::get_if<NumberTable>(&value);
  if (pairs == nullptr) return "want a table from threads or clients to MB/s, such as {1 = 66, 2 = 86}";
  auto table = ThroughputTable::make(*pairs);
  if (!table) return table.error().message;
  out = std::move(*table);
  return "";
}

Complaint take_flag(const ScenarioValue& value, bool& out) {
  const bool* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return "want true or false";
  out = *flag;
  return "";
}

Complaint take_text(const ScenarioValue& value, std::string& out) {
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr || text->empty()) return "want \"text\"";
  out = *text;
  return "";
}

template <class Enum>
struct Word {
  const char* word;
  Enum value;
};
constexpr Word<Distribution> kDistributions[] = {{"uniform", Distribution::uniform},
                                                 {"whole", Distribution::whole},
                                                 {"imbalanced", Distribution::imbalanced}};
constexpr Word<SizeSource> kSizeSources[] = {
    {"fixed", SizeSource::fixed}, {"normal", SizeSource::normal}, {"path", SizeSource::path}};
constexpr Word<ReadSharing> kReadSharings[] = {{"undivided", ReadSharing::undivided},
                                               {"divided", ReadSharing::divided}};
constexpr Word<PfsSharing> kPfsSharings[] = {{"per-thread", PfsSharing::per_thread},
                                             {"per-worker", PfsSharing::per_worker},
                                             {"per-reader", PfsSharing::per_reader}};
constexpr Word<FillCost> kFillCosts[] = {{"processed", FillCost::processed}, {"raw", FillCost::raw}};
constexpr Word<Computing> kComputings[] = {{"per-sample", Computing::per_sample},
                                           {"per-batch", Computing::per_batch}};
constexpr Word<EvaluationOrder> kOrders[] = {{"by-worker", EvaluationOrder::by_worker},
                                             {"by-time", EvaluationOrder::by_time}};

template <class Enum, size_t count>
Complaint take_word(const ScenarioValue& value, const Word<Enum> (&words)[count], Enum& out) {
  const std::string* text = std::get_if<std::string>(&value);
  std::string known;
  for (const Word<Enum>& word : words) {
    if (text != nullptr && *text == word.word) {
      out = word.value;
      return "";
    }
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", word.word);
  }
  return "want one of " + known;
}

Complaint take_sampler(const ScenarioValue& value, std::string& out) {
  const std::string* text = std::get_if<std::string>(&value);
  if (text == nullptr || (*text != "nopfs" && *text != "torch.distributed")) {
    return R"(want one of "nopfs", "torch.distributed")";
  }
  out = *text;
  return "";
}

enum class Need : uint8_t { required, optional };

struct Field {
  const char* section;
  const char* key;
  Need need;
  Complaint (*take)(Scenario&, const ScenarioValue&);
};

constexpr double kMostSeed = 9007199254740992;  // 2^53: above, a number is not exact

const Field kFields[] = {
    {"job", "workers", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_count(v, 1, kMostWorkers, s.workers); }},
    {"job", "epochs", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_count(v, 1, 1e6, s.epochs); }},
    {"job", "batch", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_count(v, 1, 1e9, s.batch); }},
    {"job", "drop_last", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_flag(v, s.drop_last); }},
    {"job", "distribution", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_word(v, kDistributions, s.distribution); }},
    {"job", "sampler", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_sampler(v, s.sampler); }},
    {"job", "seed", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_count(v, 0, kMostSeed, s.seed); }},
    {"samples", "size", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_word(v, kSizeSources, s.size_source); }},
    {"samples", "count", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_count(v, 1, kMostSamples, s.samples); }},
    {"samples", "mean", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_megabytes(v, kMostSample, s.mean); }},
    {"samples", "deviation", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_megabytes(v, kMostSample, s.deviation); }},
    {"samples", "path", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_text(v, s.path); }},
    {"samples", "records", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_text(v, s.records); }},
    {"worker", "compute", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_rate(v, s.compute); }},
    {"worker", "preprocess", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_rate(v, s.preprocess); }},
    {"worker", "network", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_rate(v, s.network); }},
    {"worker", "network_latency_ms", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_milliseconds(v, s.network_latency); }},
    {"worker", "pfs_network", Need::required,
     [](Scenario& s, const ScenarioValue& v) { return take_rate(v, s.pfs_network); }},
    {"pfs", "read", Need::required, [](Scenario& s, const ScenarioValue& v) { return take_table(v, s.pfs); }},
    {"pfs", "latency_ms", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_milliseconds(v, s.pfs_latency); }},
    {"model", "reads", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_word(v, kReadSharings, s.reads); }},
    {"model", "pfs", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_word(v, kPfsSharings, s.pfs_sharing); }},
    {"model", "fills", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_word(v, kFillCosts, s.fills); }},
    {"model", "computing", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_word(v, kComputings, s.computing); }},
    {"model", "order", Need::optional,
     [](Scenario& s, const ScenarioValue& v) { return take_word(v, kOrders, s.order); }},
};

struct ClassField {
  const char* key;
  Need need;
  Complaint (*take)(StorageClass&, const ScenarioValue&);
};

// Of [staging] and of each [class.NAME].
const ClassField kClassFields[] = {
    {"capacity", Need::required,
     [](StorageClass& c, const ScenarioValue& v) { return take_megabytes(v, kMostCapacity, c.capacity); }},
    {"threads", Need::required,
     [](StorageClass& c, const ScenarioValue& v) { return take_count(v, 1, kMostThreads, c.threads); }},
    {"read", Need::required, [](StorageClass& c, const ScenarioValue& v) { return take_table(v, c.read); }},
    {"write", Need::optional, [](StorageClass& c, const ScenarioValue& v) { return take_table(v, c.write); }},
    {"latency_ms", Need::optional,
     [](StorageClass& c, const ScenarioValue& v) { return take_milliseconds(v, c.latency); }},
};

constexpr std::string_view kClassPrefix = "class.";

StorageClass* find_class(Scenario& scenario, std::string_view name) {
  const auto found = std::find_if(scenario.classes.begin(), scenario.classes.end(),
                                  [&](const StorageClass& c) { return c.name == name; });
  return found == scenario.classes.end() ? nullptr : &*found;
}

StorageClass* class_of_section(Scenario& scenario, std::string_view section) {
  if (section == "staging") return &scenario.staging;
  return section.starts_with(kClassPrefix) ? find_class(scenario, section.substr(kClassPrefix.size()))
                                           : nullptr;
}

// Puts a value where it belongs; nothing if there is no such key.
std::optional<Complaint> set_field(Scenario& scenario, std::string_view section, std::string_view key,
                                   const ScenarioValue& value) {
  if (StorageClass* storage = class_of_section(scenario, section)) {
    for (const ClassField& field : kClassFields) {
      if (key == field.key) return field.take(*storage, value);
    }
    return std::nullopt;
  }
  for (const Field& field : kFields) {
    if (section == field.section && key == field.key) return field.take(scenario, value);
  }
  return std::nullopt;
}

std::string keys_of(std::string_view section) {
  std::string keys;
  const auto add = [&](const char* key) { keys += (keys.empty() ? "" : ", ") + std::string(key); };
  if (section == "staging" || section.starts_with(kClassPrefix)) {
    for (const ClassField& field : kClassFields) add(field.key);
  }
  for (const Field& field : kFields) {
    if (section == field.section) add(field.key);
  }
  return keys;
}

// What holds across keys. Section and key lead, for the error.
struct Conflict {
  const char* section;
  const char* key;
  std::string message;
};

std::optional<Conflict> find_conflict(const Scenario& s) {
  if (s.size_source == SizeSource::path) {
    if (s.path.empty())
      return Conflict{"samples", "path", "missing; size = \"path\" reads the sizes from it"};
  } else {
    if (s.samples == 0) return Conflict{"samples", "count", "missing"};
    if (s.mean == 0) return Conflict{"samples", "mean", "missing, or 0 MB"};
    if (!s.path.empty()) return Conflict{"samples", "path", "is for size = \"path\" only"};
    if (!s.records.empty()) return Conflict{"samples", "records", "is for size = \"path\" only"};
    if (s.size_source == SizeSource::fixed && s.deviation != 0) {
      return Conflict{"samples", "deviation", "is for size = \"normal\" only"};
    }
    if (s.drop_last && s.samples < s.batch) {
      return Conflict{"samples", "count", "with drop_last there is not one batch"};
    }
  }
  return std::nullopt;
}

// What a sweep may put right by its next value, and JobOrder refuses otherwise.
std::optional<Conflict> find_passing_conflict(const Scenario& s) {
  const bool strided = s.sampler == "torch.distributed" && s.distribution == Distribution::uniform;
  if (!strided || s.batch % s.workers == 0) return std::nullopt;
  return Conflict{"job", "batch", "no multiple of workers, as torch.distributed needs"};
}

class Reader {
 public:
  Reader(const ScenarioText& text, std::string_view origin) : text_(text), origin_(origin) {}

  Result<Scenario> read() {
    const Status sections = read_sections();
    if (!sections) return sections.error();
    for (const ScenarioEntry& entry : text_.entries) {
      const auto complaint = set_field(scenario_, entry.section, entry.key, entry.value);
      if (!complaint) {
        return at(entry.line, entry.key,
                  fmt::format("no key of [{}], which has {}", entry.section, keys_of(entry.section)));
      }
      if (!complaint->empty()) return at(entry.line, entry.key, *complaint);
    }
    const Status complete = require_all();
    if (!complete) return complete.error();
    auto conflict = find_conflict(scenario_);
    if (!conflict) conflict = find_passing_conflict(scenario_);
    if (conflict) {
      return at(line_of(conflict->section, conflict->key), conflict->key, conflict->message);
    }
    return std::move(scenario_);
  }

 private:
  Error at(int line, std::string_view key, std::string_view message) const {
    return Error{EINVAL, fmt::format("{}:{}: {}: {}", origin_, line, key, message)};
  }

  Status read_sections() {
    for (const ScenarioEntry& entry : text_.entries) {
      if (entry.section.empty()) return at(entry.line, entry.key, "stands above the first [section]");
    }
    for (const ScenarioSection& section : text_.sections) {
      if (section.name.starts_with(kClassPrefix)) {
        if (scenario_.classes.size() == kMostClasses)
          return at(section.line, section.name, "too many classes");
        scenario_.classes.emplace_back().name = section.name.substr(kClassPrefix.size());
        if (scenario_.classes.back().name == "staging") {
          return at(section.line, section.name, "the staging buffer is [staging]");
        }
      } else if (keys_of(section.name).empty()) {
        return at(section.line, section.name,
                  "no section; there are job, samples, worker, staging, class.NAME, pfs, model");
      }
    }
    scenario_.staging.name = "staging";
    return {};
  }

  Status require(const std::string& section, const char* key) const {
    for (const ScenarioEntry& entry : text_.entries) {
      if (entry.section == section && entry.key == key) return {};
    }
    return at(line_of(section, key), key, fmt::format("missing in [{}]", section));
  }

  Status require_all() const {
    for (const Field& field : kFields) {
      if (field.need == Need::optional) continue;
      Status there = require(field.section, field.key);
      if (!there) return there;
    }
    std::vector<std::string> storage = {"staging"};
    for (const StorageClass& c : scenario_.classes) storage.push_back(std::string(kClassPrefix) + c.name);
    for (const std::string& section : storage) {
      for (const ClassField& field : kClassFields) {
        if (field.need == Need::optional) continue;
        Status there = require(section, field.key);
        if (!there) return there;
      }
    }
    return {};
  }

  // Of the entry, else of its section, else of the end of the file.
  int line_of(std::string_view section, std::string_view key) const {
    for (const ScenarioEntry& entry : text_.entries) {
      if (entry.section == section && entry.key == key) return entry.line;
    }
    for (const ScenarioSection& known : text_.sections) {
      if (known.name == section) return known.line;
    }
    return text_.entries.empty() ? 1 : text_.entries.back().line;
  }

  const ScenarioText& text_;
  std::string_view origin_;
  Scenario scenario_;
};

}  // namespace

double Scenario::worker_capacity() const {
  double capacity = 0;
  for (const StorageClass& storage : classes) capacity += storage.capacity;
  return capacity;
}

Result<Scenario> parse_scenario(std::string_view text, std::string_view origin) {
  const auto parsed = parse_scenario_text(text, origin);
  if (!parsed) return parsed.error();
  auto scenario = Reader(*parsed, origin).read();
  if (!scenario) return scenario.error();
  const size_t folder = origin.rfind('/');
  const std::string_view file = folder == std::string_view::npos ? origin : origin.substr(folder + 1);
  scenario->name = file.substr(0, file.rfind('.'));
  return scenario;
}

Result<Scenario> read_scenario(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::string text(kMostText, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (errno != 0 || file.bad()) return system_error(errno == 0 ? EIO : errno, "read scenario " + path);
  if (!file.eof()) return Error{EINVAL, path + ": too long for a scenario"};
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_scenario(text, path);
}

namespace {

// Section and key of what a sweep calls `name`.
Result<std::pair<std::string, std::string>> resolve_name(Scenario& scenario, std::string_view name) {
  if (name == "staging" || find_class(scenario, name) != nullptr) {
    const std::string section = name == "staging" ? "staging" : std::string(kClassPrefix) + std::string(name);
    return std::pair<std::string, std::string>(section, "capacity");
  }
  const size_t dot = name.rfind('.');
  if (dot != std::string_view::npos) {
    return std::pair<std::string, std::string>(name.substr(0, dot), name.substr(dot + 1));
  }
  std::vector<const Field*> found;
  for (const Field& field : kFields) {
    if (name == field.key) found.push_back(&field);
  }
  const bool of_classes = std::any_of(std::begin(kClassFields), std::end(kClassFields),
                                      [&](const ClassField& field) { return name == field.key; });
  if (found.size() == 1 && !of_classes)
    return std::pair<std::string, std::string>(found[0]->section, found[0]->key);
  std::string classes;
  for (const StorageClass& storage : scenario.classes) classes += ", " + storage.name;
  return Error{EINVAL,
               fmt::format("unknown setting '{}'; use staging{} or SECTION.KEY", escaped(name), classes)};
}

}  // namespace

Status set_scenario_value(Scenario& scenario, std::string_view name, std::string_view value) {
  const auto target = resolve_name(scenario, name);
  if (!target) return target.error();
  const auto parsed = parse_scenario_value(value);
  if (!parsed) return Error{EINVAL, fmt::format("{}: {}", name, parsed.error().message)};
  Scenario changed = scenario;
  const auto complaint = set_field(changed, target->first, target->second, *parsed);
  if (!complaint) return Error{EINVAL, fmt::format("{}: no key of a scenario", escaped(name))};
  if (!complaint->empty()) return Error{EINVAL, fmt::format("{} = {}: {}", name, escaped(value), *complaint)};
  if (const auto conflict = find_conflict(changed)) {
    return Error{EINVAL, fmt::format("{} = {}: {}.{} {}", name, escaped(value), conflict->section,
                                     conflict->key, conflict->message)};
  }
  scenario = std::move(changed);
  return {};
}

}  // namespace clairfs

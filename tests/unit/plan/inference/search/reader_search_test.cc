// Several readers at once, as their opens come in the order of time.
#include "plan/inference/search/reader_search.h"

#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint32_t kFiles = 3000;

/// One program: a process that opens by itself, or whose forked workers do.
struct Job {
  uint32_t pid = 0;
  Samples order;
  LoaderModel::Loader loader;
  uint32_t speed = 1;
};

struct Mounted {
  explicit Mounted(uint32_t files = kFiles) {
    source.catalog = made_up_catalog(std::vector<uint64_t>(files, 1000), 4096);
    add(50, 1, false);
  }
  void add(uint32_t process, uint32_t parent, bool forked) {
    processes[process] = {process, parent, 50, process, forked};
  }
  FileId file(uint32_t sample) const {
    return FileId(source.catalog->children(FileId(0)).first.value + sample);
  }

  std::vector<SeenOpen> opens_of(const Job& job, size_t most) {
    add(job.pid, 50, false);
    for (uint32_t worker = 1; worker <= job.loader.workers; ++worker) add(job.pid + worker, job.pid, true);
    std::vector<SeenOpen> opens;
    LoaderModel(static_cast<uint32_t>(job.order.size()), job.loader, random).run([&](uint32_t position) {
      const uint32_t workers = job.loader.workers;
      const uint32_t worker = workers == 0 ? 0 : 1 + position / job.loader.batch % workers;
      opens.push_back({file(job.order[position]), ThreadId(job.pid + worker), Access::read});
      return opens.size() < most;
    });
    return opens;
  }

  /// All of them at once; a job of speed 3 opens three times as often as one of speed 1.
  std::vector<SeenOpen> opens_of(const std::vector<Job>& jobs, size_t most) {
    std::vector<std::vector<SeenOpen>> each;
    std::vector<size_t> lots;
    for (size_t i = 0; i < jobs.size(); ++i) {
      each.push_back(opens_of(jobs[i], most));
      lots.insert(lots.end(), jobs[i].speed, i);
    }
    std::vector<size_t> next(jobs.size());
    std::vector<SeenOpen> opens;
    while (opens.size() < most) {
      const size_t job = lots[random() % lots.size()];
      if (next[job] < each[job].size()) opens.push_back(each[job][next[job]++]);
    }
    return opens;
  }

  /// What job 200 opened, `xargs -n 5 cat` opened for it.
  void read_by_cats(std::vector<SeenOpen>& opens) {
    uint32_t count = 0;
    for (SeenOpen& open : opens) {
      if (open.thread != ThreadId(200)) continue;
      open.thread = ThreadId(1000 + count++ / 5);
      add(open.thread.value, 200, false);
    }
  }

  ProcessTree tree_of() {
    return ProcessTree([this](uint32_t number) -> std::optional<ProcessFacts> {
      const auto known = processes.find(number);
      if (known == processes.end()) return std::nullopt;
      return known->second;
    });
  }

  /// Looks as Inference does.
  std::optional<FoundOrder> watch(const std::vector<SeenOpen>& opens,
                                  const std::optional<FoundOrder>& before = std::nullopt) {
    ProcessTree tree = tree_of();
    OrderSearch search(
        source, [] { return false; }, OrderSearch::Shuffles::none);
    std::vector<SeenOpen> seen;
    size_t look_at = AccessRecorder::kFirstLook;
    for (const SeenOpen& open : opens) {
      tree.note(open.thread, TimePoint(std::chrono::hours(1)));
      seen.push_back(open);
      if (seen.size() < look_at) continue;
      look_at += look_at / 2;
      auto found =
          find_among(search, seen, watched_readers(tree, seen, [](const Readers&) { return true; }), before);
      if (found) {
        found->program = tree.program_of(found->threads);
        return found;
      }
    }
    return std::nullopt;
  }

  std::mt19937 random{31};
  DatasetSource source;
  std::map<uint32_t, ProcessFacts> processes;
};

Samples order(const std::string& text, uint32_t epoch = 0, uint32_t files = kFiles) {
  auto plan = plan_over(files, text);
  return order_of(plan, epoch);
}

Samples any_order(std::mt19937& random, uint32_t files = kFiles) {
  Samples samples(files);
  std::iota(samples.begin(), samples.end(), 0);
  std::shuffle(samples.begin(), samples.end(), random);
  return samples;
}

}  // namespace

TEST_CASE("of two jobs with other seeds, forked workers or none, one is found, and whose it is") {
  for (const uint32_t workers : {0, 2, 4}) {
    Mounted m;
    const LoaderModel::Loader loader{1, 8, workers, 2};
    const auto opens = m.opens_of({{100, order("sampler=torch.distributed seed=1"), loader},
                                   {200, order("sampler=torch.distributed seed=2"), loader}},
                                  500);
    const auto found = m.watch(opens);
    INFO("workers " << workers);
    REQUIRE(found);
    INFO(format_plan(found->plan));
    CHECK(found->plan.sampler == "torch.distributed");
    CHECK(found->plan.world == 1);
    CHECK(found->plan.workers == workers);
    CHECK((found->plan.seed == "1" || found->plan.seed == "2"));
    CHECK(found->program.pid == (found->plan.seed == "1" ? 100 : 200));
  }
}

TEST_CASE("a shuffle is found beside files that are read one after the other, or those are") {
  for (const uint32_t speed : {1, 4}) {
    Mounted m;
    const auto opens = m.opens_of({{100, order("sampler=torch.distributed seed=42"), {1, 16, 4, 2}, speed},
                                   {200, order("sampler=torch.sequential"), {1, 1, 0, 2}}},
                                  600);
    const auto found = m.watch(opens);
    REQUIRE(found);
    const bool shuffle = found->plan.sampler == "torch.distributed";
    CHECK((shuffle || found->plan.sampler == "torch.sequential"));
    CHECK(found->program.pid == (shuffle ? 100 : 200));
  }
}

TEST_CASE("files that many short processes read are those of one reader") {
  Mounted m;
  auto opens = m.opens_of(
      {{100, any_order(m.random), {1, 16, 4, 2}}, {200, order("sampler=torch.sequential"), {1, 1, 0, 2}}},
      600);
  m.read_by_cats(opens);
  const auto found = m.watch(opens);
  REQUIRE(found);
  CHECK(found->plan.sampler == "torch.sequential");
  CHECK(found->program.pid == 200);
}

// Most of what was opened lately is the shuffle's, and the order has all files.
TEST_CASE("a plan is not that of everybody who was there") {
  Mounted m;
  auto opens = m.opens_of({{100, order("sampler=torch.distributed seed=987654321"), {1, 16, 4, 2}},
                           {200, order("sampler=torch.sequential"), {1, 1, 0, 2}}},
                          600);
  m.read_by_cats(opens);
  const auto found = m.watch(opens);
  REQUIRE(found);
  CHECK(found->program.pid ==
        (found->plan.shuffle && found->plan.sampler == "torch.distributed" ? 100 : 200));
}

namespace {

/// Program 100 reads in an order with seed 42, 200 in another one. What that opens lies ahead of the first
/// one, by less than the widest window: of all opens together each is in the window, and half of them come
/// right after the one before.
std::vector<SeenOpen> mixed_opens(Mounted& m) {
  constexpr uint32_t kOpens = 100;
  constexpr uint32_t kAhead = 100;
  constexpr uint32_t kBack = 10;  // it goes back ten by ten
  const Samples shuffled = order("sampler=torch.distributed seed=42");
  for (const uint32_t pid : {100, 200}) m.add(pid, 50, false);
  std::vector<SeenOpen> opens;
  for (uint32_t i = 0; i < kOpens; ++i) {
    const uint32_t other = kAhead + i / kBack * kBack + kBack - 1 - i % kBack;
    opens.push_back({m.file(shuffled[i]), ThreadId(100), Access::read});
    opens.push_back({m.file(shuffled[other]), ThreadId(200), Access::read});
  }
  return opens;
}

}  // namespace

TEST_CASE("an order is not that of everybody if one of two opens its files in another") {
  Mounted m;
  const auto found = m.watch(mixed_opens(m));
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
  CHECK(found->program.pid == 100);
}

TEST_CASE("an order of somebody who cannot be told is found beside a few opens of a program in another one") {
  Mounted m;
  const Samples shuffled = order("sampler=torch.distributed seed=42");
  m.add(200, 50, false);
  std::vector<SeenOpen> opens;
  for (uint32_t i = 0; i < 96; ++i) {
    opens.push_back({m.file(shuffled[i]), ThreadId(0), Access::read});
    if (i % 8 == 0) opens.push_back({m.file(shuffled[2000 - i]), ThreadId(200), Access::read});
  }
  ProcessTree tree = m.tree_of();
  for (const SeenOpen& open : opens) tree.note(open.thread, TimePoint(std::chrono::hours(1)));
  OrderSearch search(
      m.source, [] { return false; }, OrderSearch::Shuffles::none);
  const auto readers = watched_readers(tree, opens, [](const Readers&) { return true; });
  REQUIRE(readers.size() == 2);
  const auto found = find_among(search, opens, readers, std::nullopt);
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
}

// Too few of each to see who reads them.
TEST_CASE("everybody's opens are searched no further once they have the order of one") {
  Mounted m;
  auto opens = mixed_opens(m);
  opens.resize(60);
  ProcessTree tree = m.tree_of();
  for (const SeenOpen& open : opens) tree.note(open.thread, TimePoint(std::chrono::hours(1)));
  OrderSearch search(
      m.source, [] { return false; }, OrderSearch::Shuffles::none);
  const auto readers = watched_readers(tree, opens, [](const Readers&) { return true; });
  REQUIRE(readers.size() == 3);
  CHECK(!find_among(search, opens, readers, std::nullopt));
  CHECK(search.orders() < 2000);  // all likely ones of program 200, no thousands of others
}

TEST_CASE("beside a reader whose order nobody can know another is found, and only that one") {
  int found_ones = 0;
  for (uint32_t round = 0; round < 3; ++round) {
    Mounted m;
    m.random.seed(round);
    const uint32_t workers = round % 3 * 2;
    const std::vector<Job> jobs{{100, any_order(m.random), {1, 8, workers, 2}, 1 + round % 2},
                                {200, order("sampler=numpy.default_rng seed=42"), {1, 8, workers, 2}}};
    const auto found = m.watch(m.opens_of(jobs, 900));
    if (!found) continue;
    ++found_ones;
    CHECK(found->plan.sampler == "numpy.default_rng");
    CHECK(found->plan.seed == "42");
    CHECK(found->program.pid == 200);
  }
  CHECK(found_ones == 3);
}

TEST_CASE("of readers whose orders nobody can know none is found") {
  for (uint32_t round = 0; round < 2; ++round) {
    Mounted m;
    m.random.seed(40 + round);
    const LoaderModel::Loader loader{1, 8, round % 3 * 2, 2};
    CHECK(
        !m.watch(m.opens_of({{100, any_order(m.random), loader}, {200, any_order(m.random), loader}}, 600)));
  }
}

// Workers that were started, not forked, are programs of their own.
TEST_CASE("a part of a reader is not taken for a reader") {
  Mounted m;
  const Job job{100, order("sampler=torch.distributed seed=42"), {1, 8, 2, 2}};
  auto opens = m.opens_of({job, {200, any_order(m.random), {1, 8, 0, 2}}}, 800);
  m.add(101, 100, false);
  m.add(102, 100, false);
  // So many strays of the reader itself that it cannot be found as a whole.
  for (SeenOpen& open : opens) {
    if (open.thread == ThreadId(200)) open.thread = ThreadId(100);
  }
  CHECK(!m.watch(opens));
}

TEST_CASE("a reader goes on in its next epoch, beside another") {
  Mounted m;
  const LoaderModel::Loader loader{1, 8, 2, 2};
  const auto found = m.watch(m.opens_of(Job{100, order("sampler=torch.distributed seed=1"), loader}, 200));
  REQUIRE(found);
  CHECK(found->program.pid == 100);
  const auto next = m.opens_of(
      {{100, order("sampler=torch.distributed seed=1", 1), loader}, {200, any_order(m.random), loader}}, 400);
  const auto on = m.watch(next, found);
  REQUIRE(on);
  CHECK(on->plan.epochs == 0);
  CHECK(on->plan.first_epoch == 1);
  CHECK(on->plan.seed == "1");
  CHECK(on->program.pid == 100);
}

namespace {

/// A mount that one reader has used for long whose order nobody can know, and another one that comes.
struct NewcomerFixture {
  NewcomerFixture() {
    seen = m.opens_of(Job{100, any_order(m.random), {1, 8, 0, 2}}, 2500);
    newcomer = m.opens_of(Job{200, order("sampler=numpy.default_rng seed=42"), {1, 8, 0, 2}}, 100);
    note(seen);
  }
  void note(std::span<const SeenOpen> opens) {
    for (const SeenOpen& open : opens) tree.note(open.thread, TimePoint(std::chrono::hours(1)));
  }
  void read_more(size_t end) {
    seen.insert(seen.end(), newcomer.begin() + static_cast<std::ptrdiff_t>(read),
                newcomer.begin() + static_cast<std::ptrdiff_t>(end));
    note(std::span(newcomer).first(end));
    read = end;
  }
  std::optional<FoundOrder> look() {
    return find_among(search, seen, watched_readers(tree, seen, [](const Readers&) { return true; }),
                      std::nullopt, [&] {
                        all_likely = true;
                        given_up = give_up;
                      });
  }

  Mounted m;
  ProcessTree tree = m.tree_of();
  std::vector<SeenOpen> seen;
  std::vector<SeenOpen> newcomer;
  size_t read = 0;
  bool give_up = false;
  bool given_up = false;
  bool all_likely = false;
  double most_orders = std::numeric_limits<double>::infinity();
  OrderSearch search{m.source, [this] { return given_up || search.orders() > most_orders; },
                     OrderSearch::Shuffles::none};
};

}  // namespace

TEST_CASE("a reader is looked at by what it has opened itself, and others are not looked at again for it") {
  NewcomerFixture f;
  f.read_more(20);
  REQUIRE(!f.look());
  const double compared = f.search.orders();
  CHECK(!f.look());  // nobody has opened more
  CHECK(f.search.orders() == compared);
  f.read_more(60);
  const auto found = f.look();
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
  CHECK(f.search.orders() < compared + 2000);
}

// A look may come just before that, and a reader may open no more than a few after it, and then wait.
TEST_CASE("a reader is looked at again once it has opened enough, also for an order that was suggested") {
  for (const bool suggested : {false, true}) {
    const std::string text =
        std::string("format=files sampler=torch.distributed seed=") + (suggested ? "918273645" : "42");
    for (const size_t few : {size_t{41}, OrderSearch::kTelling - 1}) {
      Mounted m;
      ProcessTree tree = m.tree_of();
      OrderSearch search(
          m.source, [] { return false; }, OrderSearch::Shuffles::none);
      if (suggested) search.suggest({*parse_plan(text)});
      const auto opens = m.opens_of(Job{100, order(text), {1, 8, 0, 2}}, 60);
      tree.note(ThreadId(100), TimePoint(std::chrono::hours(1)));
      const auto look = [&](size_t count) {
        const std::vector<SeenOpen> seen(opens.begin(), opens.begin() + static_cast<std::ptrdiff_t>(count));
        return find_among(search, seen, watched_readers(tree, seen, [](const Readers&) { return true; }),
                          std::nullopt);
      };
      INFO(text << " after " << few);
      REQUIRE(!look(few));
      CHECK(search.look_at(OrderSearch::kEverybody) == OrderSearch::kTelling);
      const auto found = look(opens.size());
      REQUIRE(found);
      CHECK(found->plan.seed == (suggested ? "918273645" : "42"));
    }
  }
}

TEST_CASE("what is likely is compared for everybody before other seeds are for anybody") {
  NewcomerFixture f;
  f.read_more(60);
  const auto found = f.look();
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
  CHECK(!f.all_likely);
  CHECK(f.search.orders() < 5000);
}

namespace {

/// A job in an order that nobody knows and one with a seed, which open in turn. Torch's samplers are tried
/// with the seeds below `seeds`, of shuffles only what usual values give.
struct BesideUnknown {
  BesideUnknown(const std::string& text, uint64_t seeds, uint32_t files = kFiles)
      : m(files),
        search(
            m.source, [] { return false; },
            {.all_seeds = false,
             .plausible_seeds = seeds,
             .stream_outputs = 1 << 10,
             .deep_outputs = 0,
             .when_idle = false},
            UINT64_MAX) {
    search.allow(std::numeric_limits<double>::infinity());
    const auto one = m.opens_of(Job{100, any_order(m.random, files), {1, 8, 0, 2}}, 60);
    const auto other = m.opens_of(Job{200, order(text, 0, files), {1, 8, 0, 2}}, 60);
    for (size_t i = 0; i < one.size(); ++i) opens.insert(opens.end(), {one[i], other[i]});
    for (const SeenOpen& open : opens) tree.note(open.thread, TimePoint(std::chrono::hours(1)));
    readers = watched_readers(tree, opens, [](const Readers&) { return true; });
  }
  std::optional<FoundOrder> look() { return find_among(search, opens, readers, std::nullopt); }
  /// Of the reader for whom most were.
  uint64_t tried_in_vain() const {
    uint64_t most = 0;
    for (const WatchedReaders& reader : readers)
      most = std::max(most, search.tried_in_vain(number_of(reader.readers)));
    return most;
  }

  Mounted m;
  ProcessTree tree = m.tree_of();
  OrderSearch search;
  std::vector<SeenOpen> opens;
  std::vector<WatchedReaders> readers;
};

}  // namespace

TEST_CASE("orders with any seed are compared for everybody before shuffles are searched for anybody") {
  BesideUnknown f("sampler=numpy.default_rng seed=14", 1'000'000);
  const auto found = f.look();
  REQUIRE(found);
  CHECK(found->plan.seed == "14");
  CHECK(f.tried_in_vain() == 0);
  CHECK(f.search.orders() < 100'000);  // nor was a million of them
}

TEST_CASE("orders of many samples with other seeds are compared after shuffles, which take less") {
  constexpr uint64_t kSeeds = 1000;
  BesideUnknown f("sampler=numpy.default_rng seed=14", kSeeds, OrderSearch::kQuick + 1);
  const auto found = f.look();
  REQUIRE(found);
  CHECK(found->plan.seed == "14");
  CHECK(f.tried_in_vain() > 4 * kSeeds);  // of two samplers, in two passes: and shuffles
}

TEST_CASE("all seeds of torch's samplers are tried for everybody before shuffles are searched for anybody") {
  constexpr uint64_t kSeeds = 100'000;
  BesideUnknown f("sampler=torch.distributed seed=65432", kSeeds);
  const auto found = f.look();
  REQUIRE(found);
  CHECK(found->plan.seed == "65432");
  CHECK(f.tried_in_vain() <= 4 * kSeeds);  // of two samplers, in two passes; no shuffle
}

TEST_CASE("a reader that pauses is found, however much others read then") {
  NewcomerFixture f;
  f.read_more(60);
  const auto more = f.m.opens_of(Job{100, any_order(f.m.random), {1, 8, 0, 2}}, kFiles);
  f.seen.insert(f.seen.end(), more.begin(), more.end());
  const auto found = f.look();
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
}

TEST_CASE("a search for other seeds that is given up is begun again") {
  NewcomerFixture f;
  f.search.allow(std::numeric_limits<double>::infinity());
  f.give_up = true;
  CHECK(!f.look());
  const double compared = f.search.orders();
  CHECK(compared < 5000);
  f.give_up = f.given_up = false;
  f.most_orders = 2 * compared + 1000;  // what is likely is compared again
  CHECK(!f.look());
  CHECK(f.search.orders() > f.most_orders);
}

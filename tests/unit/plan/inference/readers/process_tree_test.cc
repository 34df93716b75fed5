#include "plan/inference/readers/process_tree.h"

#include <map>
#include <thread>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Of `ps`: a shell (10) runs two jobs (100, 200) with forked workers, and xargs (300) with cats.
struct TreeFixture {
  TreeFixture() {
    add(10, 1);
    for (const uint32_t job : {100, 200}) {
      add(job, 10);
      for (uint32_t worker = job + 1; worker <= job + 4; ++worker) add(worker, job, true);
    }
    add(300, 10);
    for (uint32_t cat = 301; cat <= 340; ++cat) add(cat, 300);
  }
  void add(uint32_t process, uint32_t parent, bool forked = false, uint32_t session = 10) {
    processes[process] = {process, parent, session, 7000 + process, forked};
  }
  void note(uint32_t thread) { tree.note(ThreadId(thread), now); }
  Program program(uint32_t number) { return {number, 7000 + number}; }

  std::map<uint32_t, ProcessFacts> processes;
  size_t looks = 0;
  TimePoint now{std::chrono::hours(1)};
  ProcessTree tree{[this](uint32_t number) -> std::optional<ProcessFacts> {
    ++looks;
    const auto found = processes.find(number);
    if (found == processes.end()) return std::nullopt;
    return found->second;
  }};
};

std::vector<SeenOpen> opens_by(std::initializer_list<std::pair<uint32_t, size_t>> threads) {
  std::vector<SeenOpen> opens;
  for (const auto& [thread, count] : threads) opens.insert(opens.end(), count, {FileId(1), ThreadId(thread)});
  return opens;
}

}  // namespace

TEST_CASE("workers that were forked are of one program, and what a program started lies in it") {
  TreeFixture f;
  for (const uint32_t thread : {101, 102, 201, 301, 302}) f.note(thread);
  CHECK(f.tree.is_in(ThreadId(101), f.program(100)));
  CHECK(!f.tree.is_in(ThreadId(101), f.program(101)));
  CHECK(!f.tree.is_in(ThreadId(101), f.program(200)));
  CHECK(f.tree.is_in(ThreadId(101), f.program(10)));
  CHECK(f.tree.is_in(ThreadId(301), f.program(301)));
  CHECK(f.tree.is_in(ThreadId(301), f.program(300)));
  CHECK(!f.tree.is_in(ThreadId(301), {300, 1}));  // another one of that number
  const std::vector<uint32_t> workers{101, 101, 101, 102, 102, 102, 201};
  CHECK(f.tree.program_of(workers) == f.program(100));  // but for a stray
  CHECK(f.tree.program_of(std::vector<uint32_t>{101, 201}) == f.program(10));
  CHECK(f.tree.program_of(std::vector<uint32_t>{301, 302}) == f.program(300));
  CHECK(f.tree.program_of(std::vector<uint32_t>{9999}) == Program());
}

TEST_CASE("threads, daemons and processes that nobody sees") {
  TreeFixture f;
  f.processes[150] = {100, 10, 10, 7150, true};  // a thread of 100, which was not forked itself
  f.add(400, 1, true);                           // its parent has ended
  f.add(500, 10, true, 500);                     // a session of its own
  for (const uint32_t thread : {150, 400, 500, 600, 0}) f.note(thread);
  CHECK(f.tree.is_in(ThreadId(150), f.program(100)));
  CHECK(f.tree.is_in(ThreadId(400), f.program(400)));
  CHECK(f.tree.is_in(ThreadId(500), f.program(500)));
  CHECK(!f.tree.is_in(ThreadId(600), f.program(600)));
  CHECK(f.tree.program_of(std::vector<uint32_t>{600, 600}) == Program());
}

TEST_CASE("a thread is looked up once in ten seconds") {
  TreeFixture f;
  f.note(101);
  const size_t looks = f.looks;
  CHECK(looks == 4);  // with 100, 10 and 1
  for (int i = 0; i < 90; ++i) {
    f.now += std::chrono::milliseconds(100);
    f.note(101);
  }
  CHECK(f.looks == looks);
  // It has started another program meanwhile, or ended and another has its number.
  f.add(101, 300);
  for (int i = 0; i < 20; ++i) {
    f.now += std::chrono::milliseconds(100);
    f.note(101);
  }
  CHECK(f.looks > looks);
  CHECK(f.tree.is_in(ThreadId(101), f.program(300)));
}

TEST_CASE("a thread that could not be looked up is looked up again") {
  TreeFixture f;
  const ProcessFacts facts = f.processes.at(101);
  f.processes.erase(101);
  f.note(101);
  CHECK(!f.tree.is_in(ThreadId(101), f.program(100)));
  f.processes[101] = facts;
  for (int i = 0; i < 11; ++i) {
    f.now += std::chrono::seconds(1);
    f.note(101);
  }
  CHECK(f.tree.is_in(ThreadId(101), f.program(100)));
}

TEST_CASE("it remembers no more than it may") {
  TreeFixture f;
  for (uint32_t thread = 0; thread < 3 * ProcessTree::kMost; ++thread) {
    f.add(1000 + thread, 300);
    f.note(1000 + thread);
  }
  f.note(101);
  CHECK(f.tree.is_in(ThreadId(101), f.program(100)));
  CHECK(!f.tree.is_in(ThreadId(1000), f.program(300)));  // forgotten
}

TEST_CASE("everybody is looked at, then the programs that opened most, the outer ones first") {
  TreeFixture f;
  f.add(20, 1);
  f.add(210, 20);
  f.add(220, 20);
  for (const uint32_t thread : {101, 102, 201, 301, 302, 210, 220}) f.note(thread);
  auto readers = f.tree.readers(
      opens_by({{101, 30}, {102, 30}, {201, 50}, {301, 5}, {302, 5}, {210, 12}, {220, 9}, {0, 1}}), 8);
  REQUIRE(readers.size() == 1 + ProcessTree::kMostReaders);
  CHECK(readers[0].threads.empty());
  CHECK(readers[0].opens == 142);
  CHECK(readers[1].program == f.program(10));
  CHECK(readers[1].opens == 120);
  CHECK(readers[2].program == f.program(100));
  CHECK(readers[2].threads == std::unordered_set<uint32_t>{101, 102});
  CHECK(readers[3].program == f.program(200));
  CHECK(readers[4].program == f.program(20));
  // Who has ended needs no plan, and takes no other's place.
  f.processes.erase(100);
  readers = f.tree.readers(opens_by({{101, 30}, {201, 50}, {301, 5}}), 8);
  REQUIRE(readers.size() == 2);
  CHECK(readers[1].program == f.program(200));
  f.add(100, 10);
  // One reader has no parts but the whole.
  readers = f.tree.readers(opens_by({{101, 30}, {102, 30}}), 8);
  REQUIRE(readers.size() == 1);
  CHECK(readers[0].program == f.program(100));
  readers = f.tree.readers(opens_by({{301, 5}, {302, 5}}), 8);
  REQUIRE(readers.size() == 1);
  CHECK(readers[0].program == f.program(300));
}

TEST_CASE("a reader is followed until it has ended") {
  TreeFixture f;
  CHECK(f.tree.is_reader(ThreadId(101), f.now));  // of nobody
  f.tree.follow(f.program(100), f.now);
  CHECK(f.tree.is_reader(ThreadId(101), f.now));
  CHECK(!f.tree.is_reader(ThreadId(201), f.now));
  CHECK(f.tree.is_reader(ThreadId(0), f.now));
  CHECK(f.tree.follows_another(f.program(200), f.now));
  CHECK(!f.tree.follows_another(f.program(100), f.now));
  f.now += std::chrono::minutes(1);
  f.tree.note_in_order(f.now);
  f.now += std::chrono::minutes(1);
  CHECK(f.tree.is_reader(ThreadId(101), f.now));  // it reads, but not in order
  CHECK(f.tree.follows_another(f.program(200), f.now + std::chrono::seconds(50)));
  CHECK(!f.tree.follows_another(f.program(200), f.now + std::chrono::seconds(70)));
  CHECK(!f.tree.is_reader(ThreadId(201), f.now));
  f.processes.erase(100);
  CHECK(!f.tree.is_reader(ThreadId(201), f.now));  // is not asked of each open
  CHECK(!f.tree.follows_another(f.program(200), f.now));
  f.now += std::chrono::seconds(2);
  CHECK(f.tree.is_reader(ThreadId(201), f.now));
  CHECK(f.tree.is_reader(ThreadId(301), f.now));
}

TEST_CASE("a new process tells at once that the reader has ended, also where its number is used again") {
  TreeFixture f;
  f.tree.follow(f.program(100), f.now);
  CHECK(!f.tree.is_reader(ThreadId(301), f.now));
  f.processes[100].started = 1;
  CHECK(f.tree.is_reader(ThreadId(302), f.now));
}

TEST_CASE("what the kernel says of a process is read, whatever its name is") {
  const std::string rest = " 0 0 0 0 0 0 0 0 20 0 1 0 4711 1000 200\n";
  const auto facts = parse_process_stat("42 (a) Z 7 (b) S 7 42 12 0 -1 4194624" + rest);
  REQUIRE(facts);
  CHECK(facts->process == 42);
  CHECK(facts->parent == 7);
  CHECK(facts->session == 12);
  CHECK(facts->started == 4711);
  CHECK(facts->forked);
  CHECK(!parse_process_stat("42 (a) S 7 42 12 0 -1 4194560" + rest)->forked);
  CHECK(!parse_process_stat("42 (a) Z 7 42 12 0 -1 4194560" + rest));  // has ended
  for (const char* bad : {"", "42", "42 (a", "42 (a)", "x (a) S 7 42 12 0 -1 64 0 0", "42 (a) S 7 42"})
    CHECK(!parse_process_stat(bad));
}

TEST_CASE("threads, forked processes and others of this machine are told apart") {
  const auto own = static_cast<uint32_t>(::getpid());
  const auto self = facts_of_process(own);
  REQUIRE(self);
  CHECK(self->process == own);
  CHECK(self->parent == static_cast<uint32_t>(::getppid()));
  std::optional<ProcessFacts> of_thread;
  std::thread([&] { of_thread = facts_of_process(static_cast<uint32_t>(::gettid())); }).join();
  REQUIRE(of_thread);
  CHECK(of_thread->process == own);

  for (const bool other_program : {false, true}) {
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {  // lives until the pipe is closed
      ::dup2(pipe[0], 0);
      ::close(pipe[0]);
      ::close(pipe[1]);
      char byte = 0;
      if (other_program) ::execl("/bin/cat", "cat", nullptr);
      ::_exit(static_cast<int>(::read(0, &byte, 1)));
    }
    ::close(pipe[0]);
    const auto number = static_cast<uint32_t>(child);
    std::optional<ProcessFacts> facts;
    for (int i = 0; i < 1000 && (!facts || facts->forked == other_program); ++i) {
      facts = facts_of_process(number);
      ::usleep(10000);  // until it runs the other program
    }
    REQUIRE(facts);
    CHECK(facts->process == number);
    CHECK(facts->parent == own);
    CHECK(facts->forked != other_program);
    CHECK(facts->started >= self->started);
    ::close(pipe[1]);
    ::waitpid(child, nullptr, 0);
    CHECK(!facts_of_process(number));
  }
}

// One rank of a test of the transport over MPI: `mpiexec -n N mpi_check SCENARIO`. Started by ranks.py, which
// knows which ranks are to end well. Prints "rank R: ok" at the end, or what failed.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <spawn.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/thread.h"
#include "net/mpi/launch.h"
#include "net/mpi/transport.h"
#include "net/transport/network_sleep.h"
#include "tests/net/test_peer.h"

namespace clairfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Nothing here takes longer, also with 8 ranks and a sanitizer on two cores; ranks.py ends what hangs.
constexpr milliseconds kLong = seconds(60);

constexpr size_t kSizes[] = {0, 1, 110'000, 4 << 20, (4 << 20) + 1, (9 << 20) + 1};

uint32_t own_rank = 0;

void check(bool right, const std::string& what) {
  if (right) return;
  fmt::print(stderr, "rank {}: FAILED: {}\n", own_rank, what);
  std::fflush(nullptr);
  ::_exit(1);
}

/// Starts a line of shell; whoever started it waits for it.
pid_t start_shell(std::string line) {
  std::string shell = "sh";
  std::string option = "-c";
  char* const arguments[] = {shell.data(), option.data(), line.data(), nullptr};
  pid_t process = 0;
  check(::posix_spawnp(&process, "sh", nullptr, nullptr, arguments, environ) == 0, "starting " + line);
  return process;
}

void check_ends_well(pid_t process, const std::string& what) {
  int status = 0;
  check(::waitpid(process, &status, 0) == process && status == 0, what);
}

std::string describe(const Fetch& fetch) {
  return fmt::format("transfer {} of {} bytes from rank {}: {}", fetch.content.number, fetch.memory.size(),
                     fetch.content.from.value,
                     !fetch.status        ? "no end"
                     : fetch.status->ok() ? "ok"
                                          : fetch.status->error().message);
}

int code_of(const Fetch& fetch) {
  return fetch.status->ok() ? 0 : fetch.status->error().code;
}

struct Job {
  std::unique_ptr<MpiTransport> net;
  TestPeer peer;
  std::set<NodeId> others;
  TransferNumber next = 0;

  explicit Job(std::unique_ptr<MpiTransport> transport) : net(std::move(transport)), peer(*net) {
    for (uint32_t rank = 0; rank < net->size(); ++rank) {
      if (rank != net->self().value) others.insert(NodeId(rank));
    }
    peer.start();
  }

  /// Waits for its end; only then may it be looked at.
  void wait(const Fetched& fetch, milliseconds patience = kLong) {
    if (!peer.wait(fetch, patience))
      check(false, fmt::format("transfer {} does not end", fetch->content.number));
  }
  void expect_right(const Fetched& fetch) {
    wait(fetch);
    check(fetch->status->ok() && fetch->right(), describe(*fetch) + " (content)");
  }
  void meet(uint32_t phase) { check(peer.meet(phase, others, kLong), fmt::format("phase {}", phase)); }

  /// Every size from every one of `ranks`, several under way at a time.
  void exchange(const std::set<NodeId>& ranks, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      std::vector<Fetched> fetches;
      for (const NodeId from : ranks) {
        unsigned parts = 1;
        for (const size_t size : kSizes) fetches.push_back(peer.fetch(from, next++, size, parts++));
      }
      for (const auto& fetch : fetches) expect_right(fetch);
    }
  }

  void end() {
    check(peer.mistakes() == 0, "messages in wrong order or with wrong content");
    net->stop(seconds(5));
  }
};

/// Messages and transfers of all sizes between all pairs.
void traffic(Job& job) {
  constexpr uint64_t kMessages = 2000;
  std::mt19937 random(own_rank);
  const auto talk = [&] {
    std::uniform_int_distribution<size_t> size(0, 400);
    for (uint64_t i = 0; i < kMessages; ++i) {
      const size_t length = i % 100 == 0 ? kMaxMessage - 9 : size(random);  // now and then the largest
      for (const NodeId to : job.others) {
        while (!job.peer.chat(to, length)) std::this_thread::sleep_for(milliseconds(1));
      }
    }
  };
  std::thread talker(talk);
  job.exchange(job.others, 3);
  talker.join();
  job.meet(1);
  // Messages are in order: who has said that it came to phase 1 has said all else before.
  for (const NodeId from : job.others) {
    check(job.peer.heard(from) == kMessages,
          fmt::format("{} messages from rank {}", job.peer.heard(from), from.value));
  }
  check(job.net->send(*job.others.begin(), std::vector<std::byte>(kMaxMessage + 1)).error().code == EMSGSIZE,
        "a message that is too long");
  job.meet(2);
}

/// The peer sends more or less than was expected.
void wrong_sizes(Job& job) {
  const NodeId from = *job.others.begin();
  std::vector<size_t> sizes(std::begin(kSizes), std::end(kSizes));
  for (const size_t more : {1 << 20, 5 << 20, 8 << 20}) sizes.push_back(more);  // 1 and 5 end in equal pieces
  for (const size_t expected : sizes) {
    for (const size_t sent : sizes) {
      const TransferNumber number = job.next++;
      const Fetched fetch = job.peer.expect(from, number, expected, 2);
      job.peer.request(from, {number, sent, 3});
      job.wait(fetch);
      const int code = expected == sent ? 0 : EMSGSIZE;
      check(code_of(*fetch) == code, fmt::format("{} bytes sent: {}", sent, describe(*fetch)));
    }
  }
  job.exchange(job.others, 1);
  job.meet(1);
}

/// Cancelled before it was asked for, while it comes, and never known.
void cancelling(Job& job) {
  for (const NodeId from : job.others) {
    job.net->cancel(from, kTransferNumbers - 1);
    for (const size_t size : kSizes) {
      const Fetched before = job.peer.expect(from, job.next++, size, 2);
      job.net->cancel(from, before->content.number);
      job.wait(before);
      check(code_of(*before) == ECANCELED, "before: " + describe(*before));
      const auto untouched = before->memory;
      job.peer.request(from, {before->content.number, size, 1});

      const Fetched during = job.peer.fetch(from, job.next++, size, 3);
      job.net->cancel(from, during->content.number);
      job.wait(during);
      const int code = code_of(*during);
      check(code == ECANCELED || (code == 0 && during->right()), "during: " + describe(*during));

      // What follows arrives after the strays, which have therefore been thrown away by then.
      job.expect_right(job.peer.fetch(from, job.next++, size, 1));
      check(before->memory == untouched, "a cancelled receive was written to");
      check(before->calls == 1 && during->calls == 1, "a call-back was made twice");
    }
  }
  job.exchange(job.others, 1);
  job.meet(1);
  for (int i = 0; job.peer.sending() > 0 && i < 6000; ++i) std::this_thread::sleep_for(milliseconds(10));
  check(job.peer.sending() == 0, "sends of cancelled transfers do not end");
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto in_seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

/// Goes on with everybody but `lost`, to which transfers are still under way in both directions.
void go_on_without(Job& job, NodeId lost) {
  std::set<NodeId> living = job.others;
  living.erase(lost);
  std::vector<Fetched> hanging;
  for (const size_t size : kSizes) hanging.push_back(job.peer.fetch(lost, job.next++, size, 2));
  job.exchange(living, 3);
  check(job.peer.meet(2, living, kLong), "the living do not meet");
  std::this_thread::sleep_for(seconds(1));
  for (const auto& fetch : hanging) job.net->cancel(lost, fetch->content.number);
  for (const auto& fetch : hanging) {
    job.wait(fetch);
    const int code = code_of(*fetch);
    check(code == ECANCELED || code == EBUSY || (code == 0 && fetch->right()),
          "hanging: " + describe(*fetch));
    if (code == EBUSY) new Fetched(fetch);  // its memory must stay
  }
  // A bounded number of messages is taken for one who does not read.
  uint64_t taken = 0;
  while (taken < 10'000 && job.peer.chat(lost, 60'000)) ++taken;
  const double cpu_before = cpu_seconds();
  std::this_thread::sleep_for(seconds(3));
  const double share = (cpu_seconds() - cpu_before) / 3;
  fmt::print("rank {}: {:.2f} % of a core with a lost peer, {} large messages taken for it\n", own_rank,
             share * 100, taken);
  check(share < 0.5, "polling does not calm down");
  check(job.peer.meet(3, living, kLong), "the living do not meet again");
}

/// Rank 1 dies with transfers under way.
void killed(Job& job) {
  job.exchange(job.others, 1);
  job.meet(1);
  std::thread doomed;
  if (own_rank == 1) {
    doomed = std::thread([] {
      std::this_thread::sleep_for(milliseconds(20));
      ::kill(::getpid(), SIGKILL);
    });
    for (;;) job.exchange(job.others, 1);
  }
  go_on_without(job, NodeId(1));
}

/// Memory of which only the first page can be read. A process that reads on is killed there.
std::span<std::byte> memory_that_kills(size_t size) {
  struct sigaction action {};
  action.sa_handler = [](int) { ::kill(::getpid(), SIGKILL); };
  check(::sigaction(SIGSEGV, &action, nullptr) == 0, "sigaction");
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "mmap");
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const std::span bytes(static_cast<std::byte*>(memory), size);
  check(::mprotect(bytes.data() + page, size - page, PROT_NONE) == 0, "mprotect");
  return bytes;
}

/// Rank 1 dies while bytes for rank 0 are on their way from its memory to the network, with half of a
/// transfer sent to each of the others. Nobody may wait for the rest: a queue that rank 0's senders share
/// would now have a place that is taken and never filled, and nothing behind it would ever be read.
void torn(Job& job) {
  constexpr TransferNumber kTorn = kTransferNumbers - 1;
  constexpr size_t kHalfSent = 64 << 20;  // more than any network takes at once
  job.exchange(job.others, 1);
  Fetched hanging;
  if (own_rank != 1) hanging = job.peer.expect(NodeId(1), kTorn, kHalfSent, 1);
  job.meet(1);
  if (own_rank == 1) {
    std::vector<std::byte> bytes(kHalfSent);
    for (const NodeId to : job.others) {
      if (to != NodeId(0)) job.net->send_bulk(to, kTorn, scattered(bytes, 1), [](const Status&) {});
    }
    job.net->send_bulk(NodeId(0), kTorn, scattered(memory_that_kills(kHalfSent), 1), [](const Status&) {});
    std::this_thread::sleep_for(kLong);
    check(false, "memory that nobody can read was sent");
  }
  go_on_without(job, NodeId(1));
  job.net->cancel(NodeId(1), kTorn);
  job.wait(hanging);
  if (code_of(*hanging) == EBUSY) new Fetched(hanging);  // its memory must stay
}

/// Rank 1 stops for good (ranks.py ends it).
void stopped(Job& job) {
  job.exchange(job.others, 1);
  job.meet(1);
  if (own_rank == 1) {
    std::thread([] {
      std::this_thread::sleep_for(milliseconds(20));
      ::kill(::getpid(), SIGSTOP);
    }).detach();
    for (;;) job.exchange(job.others, 1);
  }
  go_on_without(job, NodeId(1));
}

/// Rank 1 stops, and goes on when the others have long given up its transfers.
void woken(Job& job) {
  job.exchange(job.others, 1);
  job.meet(1);
  if (own_rank == 1) {
    std::atomic<bool> awake{false};
    const NamedThread sleeper("sleeper", [&awake] {
      std::this_thread::sleep_for(milliseconds(20));
      const pid_t alarm = start_shell(fmt::format("sleep 6; kill -CONT {}", ::getpid()));
      ::kill(::getpid(), SIGSTOP);
      check_ends_well(alarm, "waking rank 1");
      awake = true;
    });
    while (!awake) job.exchange(job.others, 1);
  } else {
    go_on_without(job, NodeId(1));
  }
  job.meet(4);
  job.exchange(job.others, 2);
  job.meet(5);
}

/// Rank 1's host loses its network (a network namespace of its own is required).
void unplugged(Job& job) {
  job.exchange(job.others, 1);
  job.meet(1);
  if (own_rank == 1) {
    std::thread([] {
      std::this_thread::sleep_for(milliseconds(20));
      check_ends_well(start_shell("ip link set eth0 down"), "ip link set eth0 down");
    }).detach();
    for (;;) job.exchange(job.others, 1);
  }
  go_on_without(job, NodeId(1));
}

/// Rank 1 unmounts while the others go on.
void leaving(Job& job) {
  job.exchange(job.others, 1);
  job.meet(1);
  if (own_rank == 1) return;
  std::this_thread::sleep_for(seconds(1));
  go_on_without(job, NodeId(1));
}

/// stop() with all kinds of things outstanding.
void stopping(Job& job) {
  job.exchange(job.others, 1);
  job.meet(1);
  std::vector<Fetched> never;
  std::vector<std::byte> bytes(5 << 20);
  int sends_ended = 0;
  for (const NodeId other : job.others) {
    for (const size_t size : kSizes) never.push_back(job.peer.expect(other, job.next++, size, 2));
    job.net->send_bulk(other, kTransferNumbers - 1, scattered(bytes, 2),
                       [&](const Status&) { ++sends_ended; });
  }
  job.net->stop(milliseconds(100));
  for (const auto& fetch : never) {
    check(fetch->status && code_of(*fetch) == ECANCELED && fetch->calls == 1, "at stop: " + describe(*fetch));
  }
  check(sends_ended == static_cast<int>(job.others.size()), "a send did not end at stop");
  check(job.net->send(*job.others.begin(), {}).error().code == ECANCELED, "send after stop");
  job.net->cancel(*job.others.begin(), 0);
  const Fetched late = job.peer.expect(*job.others.begin(), job.next++, 1, 1);
  job.net->stop(seconds(1));
  check(late->calls == 0, "a call-back after stop");
}

/// Nobody wants anything.
void idle(Job& job) {
  job.meet(1);
  std::this_thread::sleep_for(milliseconds(500));
  const uint64_t ticks_before = job.peer.ticks();
  const double cpu_before = cpu_seconds();
  std::this_thread::sleep_for(seconds(5));
  const double share = (cpu_seconds() - cpu_before) / 5;
  fmt::print("rank {}: idle {:.2f} % of a core, {} ticks in 5 s, at most {} ms apart\n", own_rank,
             share * 100, job.peer.ticks() - ticks_before,
             std::chrono::duration_cast<milliseconds>(job.peer.longest_gap()).count());
  check(share < 0.5, "idle costs too much");
  check(job.peer.ticks() > ticks_before, "no ticks");
  // Each pause is a hundredth of the quiet: 231 looks from 0.5 to 5 s. A slow machine looks less often.
  check(job.peer.ticks() - ticks_before <= 300, "an idle rank looks too often");
  job.meet(2);
}

long sleeps() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

/// What nothing follows upon arrives, and is nothing to look for more often. A slow machine sleeps less
/// often.
void alone(Job& job) {
  job.peer.let_chats_stand_alone();
  job.meet(1);
  constexpr int kChats = 300;
  const long before = sleeps();
  for (int i = 0; i < kChats; ++i) {
    for (const NodeId other : job.others) check(job.peer.chat(other, 100), "a message is refused");
    std::this_thread::sleep_for(milliseconds(10));
  }
  const long slept = sleeps() - before;
  fmt::print("rank {}: {} sleeps while {} messages came and went\n", own_rank, slept, kChats);
  check(slept < 6 * kChats, "messages that nothing follows upon are looked for too often");
  job.meet(2);  // comes after them
  for (const NodeId other : job.others) check(job.peer.heard(other) == kChats, "messages were lost");
}

/// What comes ends a sleep. The net thread of rank 0 has ended, so that nobody takes it off UCX's sockets
/// before it is seen there; rank 1 talks on (ranks.py ends it).
void rousing(Job& job) {
  job.meet(1);
  if (own_rank == 1) {
    for (;;) {
      job.peer.chat(NodeId(0), 100);
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  job.net->stop(seconds(1));
  const SteadyClock clock{};
  NetworkSleep network(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), clock);
  network.listen_to(event_sets());
  check(network.sleep(kLong), "a message comes, and none of UCX's event sets is ready");
}

const std::map<std::string, void (*)(Job&)> kScenarios = {
    {"traffic", traffic},       {"wrong_sizes", wrong_sizes},
    {"cancelling", cancelling}, {"killed", killed},
    {"stopped", stopped},       {"woken", woken},
    {"unplugged", unplugged},   {"leaving", leaving},
    {"stopping", stopping},     {"idle", idle},
    {"alone", alone},           {"torn", torn},
    {"rousing", rousing},
};

/// Rank 1 never connects.
int absent(const JobPlace& place, Logger& log) {
  if (place.self == NodeId(1)) {
    std::this_thread::sleep_for(seconds(3));
    return 0;
  }
  MpiOptions options;
  options.connect_patience = seconds(1);
  const auto net = MpiTransport::connect(place, options, log);
  check(!net && net.error().code == ETIMEDOUT, "connecting without rank 1");
  fmt::print("rank {}: ok\n", own_rank);
  std::fflush(nullptr);
  ::_exit(0);
}

/// MPI_Init cannot do it.
int aborting(const JobPlace& place, Logger& log) {
  ::setenv("UCX_TLS", "bogus", 1);
  MpiOptions options;
  options.before_abort = [] {
    fmt::print("rank {}: ok\n", own_rank);
    std::fflush(nullptr);
  };
  check(!MpiTransport::connect(place, options, log), "connecting over nothing");
  return 0;
}

int run(const std::string& name) {
  const auto place = mpi_place();
  check(place.ok(), place ? "" : place.error().message);
  own_rank = place->self.value;
  Logger log("mpi_check", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (name == "absent") return absent(*place, log);
  if (name == "aborting") return aborting(*place, log);
  const auto scenario = kScenarios.find(name);
  check(scenario != kScenarios.end(), "no scenario '" + name + "'");
  check(place->size > 1, "started without mpiexec");
  auto net = MpiTransport::connect(*place, {}, log);
  check(net.ok(), net ? "" : net.error().message);
  // Without it a peer's death ends this process too, but only about one in ten does.
  check(std::getenv("UCX_ZCOPY_THRESH") != nullptr, "UCX would send from our memory in place");
  check(std::getenv("PMI_RANK") == nullptr && std::getenv("PMI_FD") == nullptr, "children would inherit PMI");
  Job job(std::move(*net));
  scenario->second(job);
  job.end();
  fmt::print("rank {}: ok\n", own_rank);
  return 0;
}

}  // namespace
}  // namespace clairfs

int main(int argc, char** argv) {
  const int status = clairfs::run(argc == 2 ? argv[1] : "");
  std::fflush(nullptr);
  ::_exit(status);  // see MpiTransport
}

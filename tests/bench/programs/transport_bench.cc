// The transport over MPI between two ranks: chunks asked for and received, small messages to and fro, and
// what idling costs. engine.py runs it; by hand:
//
//   mpiexec -disable-auto-cleanup -n 2 transport_bench [CHUNK_BYTES [SECONDS]]
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/mpi/launch.h"
#include "net/mpi/transport.h"

namespace clairfs {
namespace {

constexpr NodeId kServer{1};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto in_seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

struct Message {
  enum Kind : uint32_t { chunk, echo, cpu, end } kind;
  TransferNumber number;
  uint64_t size;
  double cpu_seconds;
};

std::vector<std::byte> bytes_of(const Message& message) {
  std::vector<std::byte> bytes(sizeof message);
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

Message message_in(std::span<const std::byte> bytes) {
  Message message{};
  std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
  return message;
}

/// Answers everything on the net thread, from memory that is there.
void serve(MpiTransport& net, size_t chunk) {
  std::vector<std::byte> memory(64 * chunk, std::byte{7});
  std::binary_semaphore over(0);
  net.start({[&](NodeId from, std::span<const std::byte> bytes) {
               Message message = message_in(bytes);
               switch (message.kind) {
                 case Message::chunk:
                   net.send_bulk(from, message.number, {{&memory[message.number % 64 * chunk], message.size}},
                                 [](const Status&) {});
                   return;
                 case Message::echo:
                   break;
                 case Message::cpu:
                   message.cpu_seconds = cpu_seconds();
                   break;
                 case Message::end:
                   over.release();
                   return;
               }
               static_cast<void>(net.send(from, bytes_of(message)));
             },
             [](TimePoint) {}});
  over.acquire();
  net.stop(std::chrono::seconds(1));
}

class Client {
 public:
  Client(MpiTransport& net, size_t chunk, Duration length)
      : net_(net), chunk_(chunk), length_(length), memory_(64 * chunk) {
    net_.start({[this](NodeId, std::span<const std::byte> bytes) { on_message(message_in(bytes)); },
                [](TimePoint) {}});
  }

  void run() {
    fmt::print("{:>24} {:>12} {:>9} {:>11} {:>11} {:>11}\n", "", "per second", "GB/s", "us each",
               "CPU rank 0", "CPU rank 1");
    for (const unsigned in_flight : {1U, 8U, 32U}) {
      measure(fmt::format("{} B chunks, {} under way", chunk_, in_flight), static_cast<double>(chunk_),
              [&] { keep_under_way(in_flight); });
    }
    measure("messages to and fro", 0, [&] { ping(); });
    measure("idle", 0, [&] { std::this_thread::sleep_for(length_); });
    send({Message::end, 0, 0, 0});
    net_.stop(std::chrono::seconds(1));
  }

 private:
  template <class Work>
  void measure(const std::string& what, double bytes_each, Work work) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until polling has calmed down
    done_ = 0;
    const double server_before = server_cpu();
    const double before = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    work();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double own = (cpu_seconds() - before) / seconds * 100;
    const double server = (server_cpu() - server_before) / seconds * 100;
    const double rate = static_cast<double>(done_.load()) / seconds;
    fmt::print("{:>24} {:>12.0f} {:>9.2f} {:>11.1f} {:>9.2f} % {:>9.2f} %\n", what, rate,
               rate * bytes_each * 1e-9, rate > 0 ? 1e6 / rate : 0, own, server);
  }

  void keep_under_way(unsigned count) {
    until_ = std::chrono::steady_clock::now() + length_;
    under_way_ = count;
    for (unsigned slot = 0; slot < count; ++slot) ask(slot);
    finished_.acquire();
  }

  void ask(unsigned slot) {
    const TransferNumber number = next_++;
    net_.receive(kServer, number, {{&memory_[slot * chunk_], chunk_}}, [this, slot](const Status& status) {
      if (!status) std::abort();
      ++done_;
      if (std::chrono::steady_clock::now() < until_) return ask(slot);
      if (--under_way_ == 0) finished_.release();
    });
    send({Message::chunk, number, chunk_, 0});
  }

  void ping() {
    until_ = std::chrono::steady_clock::now() + length_;
    send({Message::echo, 0, 0, 0});
    finished_.acquire();
  }

  double server_cpu() {
    send({Message::cpu, 0, 0, 0});
    finished_.acquire();
    return server_cpu_;
  }

  void on_message(const Message& message) {
    if (message.kind == Message::cpu) {
      server_cpu_ = message.cpu_seconds;
      return finished_.release();
    }
    ++done_;
    if (std::chrono::steady_clock::now() < until_) return send(message);
    finished_.release();
  }

  void send(const Message& message) {
    if (!net_.send(kServer, bytes_of(message))) std::abort();
  }

  MpiTransport& net_;
  const size_t chunk_;
  const Duration length_;
  std::vector<std::byte> memory_;
  std::atomic<uint64_t> done_{0};
  std::atomic<TransferNumber> next_{0};
  std::atomic<unsigned> under_way_{0};
  TimePoint until_;
  double server_cpu_ = 0;
  std::binary_semaphore finished_{0};
};

int run(size_t chunk, int seconds) {
  const auto place = mpi_place();
  if (!place || place->size != 2) {
    fmt::print(stderr, "transport_bench: start it with mpiexec -n 2\n");
    return 2;
  }
  Logger log("bench", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const auto net = MpiTransport::connect(*place, {}, log);
  if (!net) {
    fmt::print(stderr, "transport_bench: {}\n", net.error().message);
    return 1;
  }
  if (place->self == kServer) {
    serve(**net, chunk);
  } else {
    Client(**net, chunk, std::chrono::seconds(seconds)).run();
  }
  return 0;
}

}  // namespace
}  // namespace clairfs

int main(int argc, char** argv) {
  const size_t chunk = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 110'000;
  const int status = clairfs::run(chunk, argc > 2 ? std::atoi(argv[2]) : 3);
  std::fflush(nullptr);
  ::_exit(status);  // see MpiTransport
}

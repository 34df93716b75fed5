// clairfs-slowfs DIR MOUNTPOINT: serves DIR slowly, counted, with faults on demand. Runs in the foreground
// and prints "mounted" when the mount is usable; SIGTERM, SIGINT and umount end it at once, whatever is in
// flight.
#define FUSE_USE_VERSION 314
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/base/units.h"
#include "tests/support/slowfs/filesystem.h"

namespace clairfs::slowfs {
namespace {

constexpr int kAsksForParallelLookups = 317;  // as fuse_version() counts

/// libfuse before 3.17 never asks for parallel lookups in one directory, so the answer to INIT is amended on
/// its way out: latency must overlap there too.
ssize_t write_reply(int fd, iovec* iov, int count, void* /*userdata*/) {
  static bool answered = false;  // INIT is the first reply, made on the session's thread before any other
  if (!answered && count == 2 && iov[1].iov_len >= sizeof(fuse_init_out)) {
    answered = true;
    static_cast<fuse_init_out*>(iov[1].iov_base)->flags |= FUSE_PARALLEL_DIROPS;
  }
  return ::writev(fd, iov, count);
}

ssize_t read_request(int fd, void* buffer, size_t size, void* /*userdata*/) {
  return ::read(fd, buffer, size);
}

/// Blocks the signals that end the program in all threads; they are read from the descriptor instead.
Fd ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return Fd(::signalfd(-1, &signals, SFD_CLOEXEC));
}

/// Until a signal or an unmount.
void serve(fuse_session* session) {
  const Fd signals = ending_signals();
  fuse_buf request{};
  std::array<pollfd, 2> sources{{{fuse_session_fd(session), POLLIN, 0}, {signals.get(), POLLIN, 0}}};
  ::fcntl(sources[0].fd, F_SETFL, O_NONBLOCK);  // so that only poll() waits, for either
  while (fuse_session_exited(session) == 0) {
    if (::poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) break;
    if (sources[1].revents != 0) break;
    const int size = fuse_session_receive_buf(session, &request);
    if (size == -EAGAIN || size == -EINTR) continue;
    if (size <= 0) break;
    fuse_session_process_buf(session, &request);
  }
  std::free(request.mem);
}

int run(const Options& options, const std::string& mountpoint, const std::string& subtype, bool allow_other) {
  std::optional<Filesystem> filesystem(options);
  // Without default_permissions: it would add a GETATTR for every directory on a path to each operation.
  std::string mount_options = "fsname=slowfs,subtype=" + subtype;
  if (allow_other) mount_options += ",allow_other";
  std::array<char*, 3> argv = {const_cast<char*>("slowfs"), const_cast<char*>("-o"), mount_options.data()};
  fuse_args args = FUSE_ARGS_INIT(static_cast<int>(argv.size()), argv.data());
  const fuse_lowlevel_ops operations = Filesystem::operations();
  const std::unique_ptr<fuse_session, void (*)(fuse_session*)> session(
      fuse_session_new(&args, &operations, sizeof operations, &*filesystem), fuse_session_destroy);
  fuse_opt_free_args(&args);
  if (!session || fuse_session_mount(session.get(), mountpoint.c_str()) != 0) return EXIT_FAILURE;
  if (fuse_version() < kAsksForParallelLookups) {
    fuse_custom_io io{};
    io.writev = write_reply;
    io.read = read_request;
    if (fuse_session_custom_io(session.get(), &io, fuse_session_fd(session.get())) != 0) return EXIT_FAILURE;
  }
  std::cout << "mounted" << std::endl;

  serve(session.get());
  filesystem.reset();  // answers what still sleeps; an unmount would wait for it
  fuse_session_unmount(session.get());
  return EXIT_SUCCESS;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Serves a directory as a slow parallel filesystem would; for tests");
  Options options;
  std::string mountpoint;
  uint64_t latency = 0;
  std::optional<uint64_t> open_latency;
  std::optional<uint64_t> read_latency;
  std::optional<uint64_t> meta_latency;
  uint64_t seek = 0;
  std::string bandwidth = "0";
  std::string subtype = "clairfs-slowfs";
  bool allow_other = false;
  app.add_option("DIR", options.source)->required()->check(CLI::ExistingDirectory);
  app.add_option("MOUNTPOINT", mountpoint)->required()->check(CLI::ExistingDirectory);
  app.add_option("--latency", latency, "microseconds for every operation");
  app.add_option("--open-latency", open_latency, "microseconds for open");
  app.add_option("--read-latency", read_latency, "microseconds for read");
  app.add_option("--meta-latency", meta_latency,
                 "microseconds for lookup, getattr, readdir, readlink, statfs");
  app.add_option("--seek", seek,
                 "microseconds that a read which does not begin where the last one of its file ended keeps "
                 "all others waiting");
  app.add_option("--bandwidth", bandwidth, "bytes/s shared by all reads (200M), 0: unlimited");
  app.add_option("--max-parallel", options.server.max_parallel, "requests in service at once, 0: unlimited");
  app.add_option("--attr-timeout", options.attr_timeout,
                 "seconds the kernel may keep entries and attributes");
  app.add_option("--trace", options.server.trace,
                 "a file for one line an operation: arrival, end (both microseconds), name, bytes, path");
  app.add_flag("--cached", options.cached, "the kernel may keep file data (not every read arrives then)");
  app.add_option("--subtype", subtype, "the mount's type is fuse.SUBTYPE");
  app.add_flag("--allow-other", allow_other, "other users may use the mount; permissions are not checked");
  CLI11_PARSE(app, argc, argv);

  using std::chrono::microseconds;
  options.server.open_latency = microseconds(open_latency.value_or(latency));
  options.server.read_latency = microseconds(read_latency.value_or(latency));
  options.server.meta_latency = microseconds(meta_latency.value_or(latency));
  options.server.seek = microseconds(seek);
  const auto bytes = parse_size(bandwidth);
  if (!bytes) throw std::runtime_error("--bandwidth: " + bytes.error().message);
  options.server.bandwidth = *bytes;
  return run(options, mountpoint, subtype, allow_other);
}

}  // namespace
}  // namespace clairfs::slowfs

int main(int argc, char** argv) {
  try {
    return clairfs::slowfs::parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "clairfs-slowfs: " << error.what() << "\n";
    return EXIT_FAILURE;
  }
}

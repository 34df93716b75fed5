#include "net/mpi/loop.h"

#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

#include "net/mpi/job_environment.h"
#include "net/mpi/library.h"

namespace clairfs {
namespace {

// The longest pause comes on top: see transport.h for what is promised.
constexpr auto kTickEvery = std::chrono::milliseconds(10);

}  // namespace

Result<MpiWorld> init_mpi(const JobPlace& place) {
  int provided = 0;
  mpi().Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  // From here on errors are returned: a peer's death must not be ours.
  mpi().Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  mpi().Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int self = 0;
  int size = 0;
  mpi().Comm_rank(MPI_COMM_WORLD, &self);
  mpi().Comm_size(MPI_COMM_WORLD, &size);
  if (static_cast<uint32_t>(self) != place.self.value || static_cast<uint32_t>(size) != place.size) {
    return Error{
        EPROTO,
        fmt::format("the launcher says rank {} of {}, MPI says rank {} of {}: this mpiexec or srun is "
                    "not that of the MPI which clairfs was built with; {}",
                    place.self.value, place.size, self, size, way_to_a_job())};
  }
  int has_tags = 0;
  const int* highest_tag = nullptr;
  mpi().Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest_tag, &has_tags);
  if (has_tags == 0 || *highest_tag < MpiBulk::kHighestTag) {
    return Error{ENOTSUP, fmt::format("this MPI's tags end at {}; {} are needed",
                                      has_tags != 0 ? *highest_tag : 0, MpiBulk::kHighestTag)};
  }
  MpiWorld world;
  for (MPI_Comm* comm : {&world.messages, &world.bulk}) {
    const int error = mpi().Comm_dup(MPI_COMM_WORLD, comm);
    if (error != MPI_SUCCESS)
      return Error{EPROTO, "the nodes cannot reach each other: " + mpi_error_text(error)};
  }
  return world;
}

MpiLoop::MpiLoop(const MpiWorld& world, const JobPlace& place)
    : messages(world.messages, place.size, requests),
      bulk(world.bulk, requests),
      pace(steady_now()),
      next_tick_(steady_now()) {}

Duration MpiLoop::turn() {
  bool active = requests.poll();
  // Messages last: MPI looks first, and takes from the network only if there is nothing. So what came while
  // we slept is found by the second probe, which is not to be that of the next look.
  if (bulk.take_strays()) active = true;
  auto found = MpiMessages::Found::nothing;
  if (handlers.message) found = messages.poll(handlers.message, handlers.stands_alone);
  if (found == MpiMessages::Found::active) active = true;
  const TimePoint now = steady_now();
  if (now >= next_tick_) {
    next_tick_ = now + kTickEvery;
    bulk.abandon_overdue(now);
    if (handlers.tick) handlers.tick(now);
  }
  if (active) pace.activity(now);
  return found == MpiMessages::Found::begun ? Duration::zero() : pace.pause(now);
}

}  // namespace clairfs

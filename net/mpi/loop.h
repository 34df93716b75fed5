// The net thread's loop between MPI_Init and its end: the polled state of the transport over MPI.
#pragma once

#include <cstdint>

#include <mpi.h>

#include "cache/base/clock.h"
#include "cache/base/result.h"
#include "cache/base/types.h"
#include "net/mpi/bulk.h"
#include "net/mpi/messages.h"
#include "net/mpi/poll_pace.h"
#include "net/mpi/requests.h"
#include "net/transport/transport.h"

namespace clairfs {

/// Initialises MPI in this thread, which alone may call MPI from now on, and waits for all ranks; gives a
/// communicator for each kind of traffic. Errors: EPROTO, ENOTSUP as MpiTransport::connect() has them.
/// REQUIRES: loaded_mpi() is ok.
struct MpiWorld {
  MPI_Comm messages = MPI_COMM_NULL;
  MPI_Comm bulk = MPI_COMM_NULL;
};
Result<MpiWorld> init_mpi(const JobPlace& place);

/// Net thread only.
struct MpiLoop {
  MpiLoop(const MpiWorld& world, const JobPlace& place);

  /// One look at everything. Returns how long to sleep before the next.
  Duration turn();

  MpiRequests requests;
  MpiMessages messages;
  MpiBulk bulk;
  Transport::Handlers handlers;
  PollPace pace;

 private:
  TimePoint next_tick_;
};

}  // namespace clairfs

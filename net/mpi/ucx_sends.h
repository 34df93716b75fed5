// A fault of MPICH 5, cured from outside: it crashes when a send fails at once.
//
// MPI_Isend of MPICH 5.0.2 writes through its request even if UCX refused to send and there is no request.
// UCX refuses as soon as it knows that the peer is gone: the death of one node would end the others, each
// with its next message. UCX's function is therefore called through one of ours, which takes a refused send
// for one that is lost on its way. The transport acknowledges nothing, so lost messages are what its users
// are prepared for.
#pragma once

namespace clairfs {

/// Sends that UCX refuses count as sent from now on, in the whole process. REQUIRES: MPI is loaded, globally,
/// and has not been initialised. From the thread that loads it.
void lose_refused_sends();

}  // namespace clairfs

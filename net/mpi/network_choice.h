// Which networks UCX, the library below MPI, may take, and which it took.
#pragma once

#include <string>

#include "cache/base/log.h"

namespace clairfs {

/// Tells UCX what to use. `wanted`:
/// - "safe": TCP and shared memory. A node that dies never ends others.
/// - "fast": whatever UCX finds, InfiniBand and other RDMA included. With those UCX takes a peer's death for
/// a
///   fatal error, and may end this process too.
/// - else a list for UCX_TLS, such as "rc_x,tcp,self".
/// - empty: what UCX_TLS says, if the user has set it; else safe.
/// Returns what is in force, for people. REQUIRES: MPI is not initialised yet, and no other thread reads or
/// writes the environment.
std::string choose_network(const std::string& wanted, Logger& log);

/// Has UCX tell from now on what it takes. Does nothing where no UCX is loaded, or one that cannot tell. Call
/// it when MPI's library is loaded, before MPI_Init. Once.
void watch_network();

/// What UCX has said so far that it takes: "tcp/eth0 posix/memory", in the order in which it said so; empty
/// if it has said nothing. Thread-safe.
std::string network_taken();

}  // namespace clairfs

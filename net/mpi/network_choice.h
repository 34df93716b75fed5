// Tells UCX, the library below MPI, which networks it may take, and finds out which it took.
#pragma once

#include <string>

#include "cache/base/log.h"

namespace clairfs {

/// Tells UCX what to use. `wanted`:
/// - "safe": TCP, also between nodes of one machine. A node that dies never ends others, nor cuts them off.
/// - "fast": whatever UCX finds, InfiniBand, other RDMA and shared memory included. With those a peer's death
///   may end this process too, or leave it deaf to all others.
/// - else a list for UCX_TLS, such as "rc_x,tcp,self".
/// - empty: what UCX_TLS says, if the user has set it; else safe.
/// Returns what is in force, for people. REQUIRES: MPI is not initialised yet, and no other thread reads or
/// writes the environment.
std::string choose_network(const std::string& wanted, Logger& log);

/// Whether UCX is there and may take nothing but TCP. REQUIRES: MPI's library is loaded, and no other thread
/// writes the environment.
bool takes_tcp_alone();

/// Has UCX tell from now on what it takes, and its warnings and errors to `log`, until forget_log(). Does
/// nothing where no UCX is loaded, or one that cannot tell, or where the user says what UCX logs, or to which
/// file (UCX_LOG_LEVEL, UCX_LOG_FILE): then UCX writes itself. Call it when MPI's library is loaded, before
/// MPI_Init. Once. REQUIRES: no other thread writes the environment.
void watch_network(Logger& log);

/// Warnings and errors of UCX are lost from now on: there may be no log any more. Thread-safe.
void forget_log();

/// The networks that UCX has logged so far that it takes: "tcp/lo tcp/eth0", in the order of its lines; empty
/// before the first. Thread-safe.
std::string network_taken();

}  // namespace clairfs

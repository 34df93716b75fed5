// MPI's outstanding operations, and what is to happen when each is over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <mpi.h>

namespace clairfs {

/// MPI's text for an error code, one line.
std::string mpi_error_text(int code);

/// Net thread only.
class MpiRequests {
 public:
  /// `status.MPI_ERROR` is how it went; MPI_Test_cancelled tells a cancelled receive.
  using Done = std::function<void(const MPI_Status& status)>;
  using Id = uint64_t;

  /// Takes over `request`. `done` is called from poll() exactly once, or never if the operation never ends.
  /// `quiet`: that it is over is nothing to look again for.
  Id add(MPI_Request request, Done done, bool quiet = false);
  /// Asks MPI to cancel it; if that succeeds `done` follows. Only receives can be cancelled. Unknown:
  /// ignored.
  void cancel(Id id);
  /// Lets MPI make progress and calls back for all that is over. True if there was any that is not quiet.
  bool poll();
  size_t size() const { return requests_.size(); }

 private:
  struct Entry {
    Id id;
    Done done;
    bool quiet;
  };
  /// Takes entry `i` out of both vectors; the last one takes its place.
  Entry take(size_t i);

  Id next_id_ = 0;
  std::vector<MPI_Request> requests_;  // side by side with entries_, since MPI_Testsome wants an array
  std::vector<Entry> entries_;
  std::vector<int> indices_;  // of MPI_Testsome
  std::vector<MPI_Status> statuses_;
};

}  // namespace clairfs

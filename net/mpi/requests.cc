#include "net/mpi/requests.h"

#include <algorithm>
#include <utility>

#include "net/mpi/library.h"

namespace clairfs {

std::string mpi_error_text(int code) {
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  mpi().Error_string(code, text.data(), &length);
  text.resize(static_cast<size_t>(length));
  // MPICH gives the stack of its calls, a line each; the innermost one, which comes last, has the cause.
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  return text;
}

MpiRequests::Id MpiRequests::add(MPI_Request request, Done done, bool quiet) {
  requests_.push_back(request);
  entries_.push_back({next_id_, std::move(done), quiet});
  return next_id_++;
}

void MpiRequests::cancel(Id id) {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [id](const Entry& e) { return e.id == id; });
  if (entry != entries_.end()) mpi().Cancel(&requests_[static_cast<size_t>(entry - entries_.begin())]);
}

MpiRequests::Entry MpiRequests::take(size_t i) {
  Entry entry = std::move(entries_[i]);
  if (i + 1 < entries_.size()) {
    entries_[i] = std::move(entries_.back());
    requests_[i] = requests_.back();
  }
  entries_.pop_back();
  requests_.pop_back();
  return entry;
}

bool MpiRequests::poll() {
  if (requests_.empty()) return false;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int over = 0;
  const int tested = mpi().Testsome(static_cast<int>(requests_.size()), requests_.data(), &over,
                                    indices_.data(), statuses_.data());
  if (over <= 0) return false;
  // MPI_Testsome fills in MPI_ERROR only if it says that there is one.
  const bool has_errors = tested == MPI_ERR_IN_STATUS;
  std::vector<std::pair<Entry, MPI_Status>> ended;
  // It gives indices in ascending order; taken from the back, none that is over is moved by taking another.
  for (auto i = static_cast<size_t>(over); i-- > 0;) {
    if (!has_errors) statuses_[i].MPI_ERROR = MPI_SUCCESS;
    ended.emplace_back(take(static_cast<size_t>(indices_[i])), statuses_[i]);
  }
  bool any = false;
  for (auto& [entry, status] : ended) {
    entry.done(status);
    any = any || !entry.quiet;
  }
  return any;
}

}  // namespace clairfs

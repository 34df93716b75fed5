#include "net/mpi/messages.h"

#include <algorithm>
#include <utility>

#include "net/mpi/library.h"

namespace clairfs {
namespace {

constexpr int kTag = 0;  // all of them have one tag: MPI keeps the order only within a tag

// Messages taken between two looks at the other traffic, so that a flood of them cannot starve it.
constexpr int kTakenAtOnce = 32;

// What MPI has at once as soon as it knows of it. Nothing longer stands alone.
constexpr int kShort = 1024;

}  // namespace

MpiMessages::MpiMessages(MPI_Comm comm, uint32_t size, MpiRequests& requests)
    : comm_(comm), requests_(requests), incoming_(size) {}

void MpiMessages::send(NodeId to, Bytes message, std::function<void(int error)> gone) {
  const auto bytes = std::make_shared<const Bytes>(std::move(message));
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = mpi().Isend(bytes->data(), static_cast<int>(bytes->size()), MPI_BYTE,
                                static_cast<int>(to.value), kTag, comm_, &request);
  if (error != MPI_SUCCESS) return gone(error);
  requests_.add(
      request, [bytes, gone = std::move(gone)](const MPI_Status& status) { gone(status.MPI_ERROR); }, true);
}

MpiMessages::Found MpiMessages::poll(const Deliver& deliver, const StandsAlone& stands_alone) {
  Found found = Found::nothing;
  for (int i = 0; i < kTakenAtOnce; ++i) {
    const Found taken = take_one();
    if (taken == Found::nothing) break;
    found = std::max(found, taken);
  }
  return deliver_whole(deliver, stands_alone) ? Found::active : found;
}

MpiMessages::Found MpiMessages::take_one() {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (mpi().Improbe(MPI_ANY_SOURCE, kTag, comm_, &found, &message, &status) != MPI_SUCCESS || found == 0)
    return Found::nothing;
  int size = 0;
  mpi().Get_count(&status, MPI_BYTE, &size);
  const auto incoming = std::make_shared<Incoming>();
  const int taken = bytes_taken(size);
  incoming->bytes.resize(static_cast<size_t>(taken));
  incoming_[static_cast<size_t>(status.MPI_SOURCE)].push_back(incoming);
  ++waiting_;
  MPI_Request request = MPI_REQUEST_NULL;
  if (mpi().Imrecv(incoming->bytes.data(), taken, MPI_BYTE, &message, &request) != MPI_SUCCESS) {
    incoming->failed = true;
    return Found::active;
  }
  requests_.add(
      request,
      [incoming](const MPI_Status& ended) {
        incoming->failed = ended.MPI_ERROR != MPI_SUCCESS;
        incoming->whole = !incoming->failed;
      },
      true);
  return size <= kShort ? Found::begun : Found::active;
}

// True if more may follow upon any of them.
bool MpiMessages::deliver_whole(const Deliver& deliver, const StandsAlone& stands_alone) {
  if (waiting_ == 0) return false;
  bool any = false;
  for (uint32_t from = 0; from < incoming_.size(); ++from) {
    auto& queue = incoming_[from];
    while (!queue.empty() && (queue.front()->whole || queue.front()->failed)) {
      const auto incoming = std::move(queue.front());
      queue.pop_front();
      --waiting_;
      any = any || incoming->failed || !stands_alone || !stands_alone(incoming->bytes);
      if (incoming->whole) deliver(NodeId(from), incoming->bytes);
    }
  }
  return any;
}

}  // namespace clairfs

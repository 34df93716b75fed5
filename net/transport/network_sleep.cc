#include "net/transport/network_sleep.h"

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <sys/eventfd.h>

namespace clairfs {
namespace {

// Closed, or something else has its number now, from which nothing more will come. It would end every sleep
// at once. No open event set is so.
bool is_over(const pollfd& event) {
  return (event.revents & (POLLNVAL | POLLHUP | POLLERR)) != 0 && (event.revents & POLLIN) == 0;
}

}  // namespace

std::vector<int> event_sets() {
  std::vector<int> sets;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code closed;
    const auto target = std::filesystem::read_symlink(entry->path(), closed);
    if (!closed && target == "anon_inode:[eventpoll]")
      sets.push_back(std::stoi(entry->path().filename().string()));
  }
  return sets;
}

NetworkSleep::NetworkSleep(Fd waker, const Clock& clock) : waker_(std::move(waker)), clock_(clock) {
  events_.push_back({waker_.get(), POLLIN, 0});
}

void NetworkSleep::listen_to(const std::vector<int>& descriptors) {
  for (const int descriptor : descriptors) events_.push_back({descriptor, POLLIN, 0});
}

bool NetworkSleep::sleep(Duration most) {
  if (events_.size() == 1) most = std::min(most, kLeast);
  bool listens = most >= kLeast;
  if (const TimePoint now = clock_.now(); listens && now < listen_again_) {
    listens = false;
    most = std::min(most, listen_again_ - now);
  }
  const auto whole = std::chrono::floor<std::chrono::seconds>(most);
  const timespec timeout{whole.count(), std::chrono::nanoseconds(most - whole).count()};
  const size_t waits_for = listens ? events_.size() : 1;
  if (::ppoll(events_.data(), waits_for, &timeout, nullptr) <= 0) return false;
  if (events_.front().revents != 0) {
    eventfd_t times = 0;
    (void)::eventfd_read(waker_.get(), &times);
  }
  bool is_ready = false;
  for (size_t i = 1; i < waits_for; ++i) is_ready = is_ready || (events_[i].revents & POLLIN) != 0;
  std::erase_if(events_, is_over);
  if (is_ready) listen_again_ = clock_.now() + kDeaf;
  return is_ready;
}

void NetworkSleep::wake() {
  (void)::eventfd_write(waker_.get(), 1);
}

}  // namespace clairfs

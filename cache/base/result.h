// Result<T> and Status: failures that are to be expected, carried as values.
//
// An Error holds an errno value (what a system call or FUSE reply needs) and one line for people: what was
// tried, on which path, and why it failed. Exceptions are left to start-up code.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace clairfs {

struct Error {
  int code = 0;         ///< errno value, never 0
  std::string message;  ///< one line: what was tried, on which path, why it failed
};

/// An Error whose message ends in the system's text for `code`: "open /data/x: No such file or directory".
Error system_error(int code, const std::string& what);

/// A value or the Error that kept it from being made. Not thread-safe; moves with its value.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  /// REQUIRES: ok().
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// REQUIRES: !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return error_.code == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

using Status = Result<void>;

}  // namespace clairfs

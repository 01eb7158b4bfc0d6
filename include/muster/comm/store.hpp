#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster {

/// Keys and values that all ranks of a job share; what they meet by.
///
/// Values are bytes. Every function may be called from any thread; calls from several threads do
/// not wait for one another. Functions throw Timeout when the time limit runs out, and
/// RendezvousError when the launcher or the job's generation is gone.
class Store {
public:
  using Millis = std::chrono::milliseconds;

  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until the key exists.
  virtual std::string get(const std::string& key, Millis timeout) = 0;
  /// Waits until all keys exist; their values in the same order.
  virtual std::vector<std::string> get_all(const std::vector<std::string>& keys,
                                           Millis timeout) = 0;
  /// Adds to a decimal number; a missing key counts as 0. Returns the sum.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// Sets `desired` if the key holds `expected`, or is missing and `expected` is empty. Returns the
  /// value afterwards; for a missing key that was not set, `expected`.
  virtual std::string
  compare_set(const std::string& key, const std::string& expected, const std::string& desired) = 0;
  virtual void append(const std::string& key, const std::string& value) = 0;
  /// Waits until all keys exist.
  virtual void wait(const std::vector<std::string>& keys, Millis timeout) = 0;
  /// True if all keys exist.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  virtual bool erase(const std::string& key) = 0;
  virtual std::int64_t size() = 0;
  virtual std::vector<std::string> keys() = 0;
  /// Queues are separate from keys: push never waits, pop does (nullopt: nothing in time).
  virtual void push(const std::string& queue, const std::string& value) = 0;
  virtual std::optional<std::string> pop(const std::string& queue, Millis timeout) = 0;
  virtual std::int64_t queue_size(const std::string& queue) = 0;
};

} // namespace muster

#pragma once

#include <muster/comm/store.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "protocol.hpp"

namespace muster::process {

/// The launcher's store, seen from a rank. Any number of threads may call at once: one of those
/// that wait reads the channel and hands the others their replies; nothing is held while waiting.
class ControlStore : public Store {
public:
  /// `socket` must outlive this object.
  explicit ControlStore(int socket) : socket_(socket) {}

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Millis timeout) override;
  std::vector<std::string> get_all(const std::vector<std::string>& keys, Millis timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  std::string compare_set(const std::string& key,
                          const std::string& expected,
                          const std::string& desired) override;
  void append(const std::string& key, const std::string& value) override;
  void wait(const std::vector<std::string>& keys, Millis timeout) override;
  bool check(const std::vector<std::string>& keys) override;
  bool erase(const std::string& key) override;
  std::int64_t size() override;
  std::vector<std::string> keys() override;
  void push(const std::string& queue, const std::string& value) override;
  std::optional<std::string> pop(const std::string& queue, Millis timeout) override;
  std::int64_t queue_size(const std::string& queue) override;

private:
  StoreReply call(StoreRequest request);
  StoreReply wait_for(std::uint64_t id, Millis patience);
  void read_one(std::unique_lock<std::mutex>& lock, Millis patience);
  StoreReply waiting_call(StoreRequest request, Millis timeout);

  int socket_;
  std::atomic<std::uint64_t> next_id_ = 0;
  std::mutex mutex_; // guards what follows
  std::condition_variable changed_;
  std::map<std::uint64_t, std::optional<StoreReply>> pending_;
  bool reading_ = false; // a thread is in read_one
  std::string over_;     // why no call can succeed any more
};

} // namespace muster::process

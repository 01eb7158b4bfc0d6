#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "protocol.hpp"

namespace muster::process {

/// The job's key-value store, in the launcher: a map, and the requests that wait for keys.
/// Used from one thread. Knows nothing of sockets: replies go to a function.
class StoreServer {
public:
  using Clock = std::chrono::steady_clock;
  /// Sends a reply to the rank with this index.
  using Answer = std::function<void(std::size_t rank, StoreReply reply)>;

  explicit StoreServer(Answer answer) : answer_(std::move(answer)) {}

  void handle(std::size_t rank, StoreRequest request, Clock::time_point now);
  /// Answers requests whose time limit has passed.
  void expire(Clock::time_point now);
  /// When expire() has something to do next.
  std::optional<Clock::time_point> deadline() const;
  /// Drops what this rank waits for.
  void forget(std::size_t rank);
  /// Answers all that wait, and all that come, with StoreStatus::closed.
  void close();

private:
  struct Waiter {
    std::size_t rank;
    StoreRequest request;
    std::multimap<Clock::time_point, std::list<Waiter>::iterator>::iterator deadline;
    std::string key; // what it is listed under in waiting_
  };
  using Waiters = std::list<Waiter>;

  void reply(std::size_t rank, const StoreRequest& request, StoreReply reply);
  void change(const std::string& key, std::string value);
  bool try_answer(std::size_t rank, const StoreRequest& request, std::string& missing);
  void block(std::size_t rank, StoreRequest request, std::string missing, Clock::time_point now);
  void wake(const std::string& key);
  void remove(Waiters::iterator waiter);
  std::int64_t add(const std::string& key, std::int64_t amount);
  std::string compare_set(const StoreRequest& request);

  Answer answer_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  Waiters waiters_;
  std::unordered_multimap<std::string, Waiters::iterator> waiting_; // by the first missing key
  std::multimap<Clock::time_point, Waiters::iterator> deadlines_;
  bool closed_ = false;
};

} // namespace muster::process

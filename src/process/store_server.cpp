#include "store_server.hpp"

#include <algorithm>
#include <charconv>

namespace muster::process {

namespace {

/// Queues and keys wait in one table; a queue's name there cannot be a key's.
std::string queue_name(const std::string& queue) { return std::string("\0queue ", 7) + queue; }

std::int64_t to_number(const std::string& text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

} // namespace

void StoreServer::reply(std::size_t rank, const StoreRequest& request, StoreReply reply) {
  reply.id = request.id;
  answer_(rank, std::move(reply));
}

void StoreServer::change(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  wake(key);
}

std::int64_t StoreServer::add(const std::string& key, std::int64_t amount) {
  const auto found = values_.find(key);
  const std::int64_t sum = (found == values_.end() ? 0 : to_number(found->second)) + amount;
  change(key, std::to_string(sum));
  return sum;
}

std::string StoreServer::compare_set(const StoreRequest& request) {
  const std::string& key = request.keys[0];
  const auto found = values_.find(key);
  const bool equal =
      found == values_.end() ? request.values[0].empty() : found->second == request.values[0];
  if (equal)
    change(key, request.values[1]);
  const auto now = values_.find(key);
  return now == values_.end() ? request.values[0] : now->second;
}

void StoreServer::handle(std::size_t rank, StoreRequest request, Clock::time_point now) {
  if (closed_)
    return reply(rank, request, {.status = StoreStatus::closed});
  const auto number = [&](std::int64_t value) { reply(rank, request, {.number = value}); };
  switch (request.op) {
  case StoreOp::set:
    number(0);
    return change(request.keys[0], std::move(request.values[0]));
  case StoreOp::add:
    return number(add(request.keys[0], request.number));
  case StoreOp::compare_set:
    return reply(rank, request, {.values = {compare_set(request)}});
  case StoreOp::append:
    number(0);
    return change(request.keys[0], values_[request.keys[0]] + request.values[0]);
  case StoreOp::check:
    return number(std::all_of(request.keys.begin(), request.keys.end(), [&](const auto& key) {
      return values_.contains(key);
    }));
  case StoreOp::erase:
    return number(static_cast<std::int64_t>(values_.erase(request.keys[0])));
  case StoreOp::size:
    return number(static_cast<std::int64_t>(values_.size()));
  case StoreOp::keys: {
    StoreReply all;
    for (const auto& [key, value] : values_)
      all.values.push_back(key);
    return reply(rank, request, std::move(all));
  }
  case StoreOp::push: {
    number(0);
    const std::string name = queue_name(request.keys[0]);
    queues_[name].push_back(std::move(request.values[0]));
    return wake(name);
  }
  case StoreOp::queue_size: {
    const auto found = queues_.find(queue_name(request.keys[0]));
    return number(found == queues_.end() ? 0 : static_cast<std::int64_t>(found->second.size()));
  }
  case StoreOp::get:
  case StoreOp::wait:
  case StoreOp::pop: {
    std::string missing;
    if (!try_answer(rank, request, missing))
      block(rank, std::move(request), std::move(missing), now);
    return;
  }
  }
}

/// Answers a request that may have to wait; false: not yet, `missing` says for what.
bool StoreServer::try_answer(std::size_t rank, const StoreRequest& request, std::string& missing) {
  if (request.op == StoreOp::pop) {
    missing = queue_name(request.keys[0]);
    const auto queue = queues_.find(missing);
    if (queue == queues_.end())
      return false;
    StoreReply one{.values = {std::move(queue->second.front())}};
    queue->second.pop_front();
    if (queue->second.empty())
      queues_.erase(queue);
    reply(rank, request, std::move(one));
    return true;
  }
  for (const std::string& key : request.keys)
    if (!values_.contains(key)) {
      missing = key;
      return false;
    }
  StoreReply found;
  if (request.op == StoreOp::get)
    for (const std::string& key : request.keys)
      found.values.push_back(values_[key]);
  reply(rank, request, std::move(found));
  return true;
}

void StoreServer::block(std::size_t rank,
                        StoreRequest request,
                        std::string missing,
                        Clock::time_point now) {
  if (request.number <= 0)
    return reply(rank, request, {.status = StoreStatus::timeout, .values = {missing}});
  const auto limit = now + std::chrono::milliseconds(request.number);
  waiters_.push_front({rank, std::move(request), {}, missing});
  waiters_.front().deadline = deadlines_.emplace(limit, waiters_.begin());
  waiting_.emplace(std::move(missing), waiters_.begin());
}

void StoreServer::remove(Waiters::iterator waiter) {
  const auto [first, last] = waiting_.equal_range(waiter->key);
  waiting_.erase(
      std::find_if(first, last, [&](const auto& entry) { return entry.second == waiter; }));
  deadlines_.erase(waiter->deadline);
  waiters_.erase(waiter);
}

/// `key` has appeared: answers those that waited for it, or lets them wait for their next key.
void StoreServer::wake(const std::string& key) {
  const auto [first, last] = waiting_.equal_range(key);
  std::vector<Waiters::iterator> woken;
  for (auto entry = first; entry != last; ++entry)
    woken.push_back(entry->second);
  for (const auto waiter : woken) {
    std::string missing;
    if (try_answer(waiter->rank, waiter->request, missing)) {
      remove(waiter);
    } else if (missing != key) {
      const auto [from, to] = waiting_.equal_range(key);
      waiting_.erase(
          std::find_if(from, to, [&](const auto& entry) { return entry.second == waiter; }));
      waiter->key = missing;
      waiting_.emplace(std::move(missing), waiter);
    }
  }
}

void StoreServer::expire(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto waiter = deadlines_.begin()->second;
    reply(waiter->rank, waiter->request, {.status = StoreStatus::timeout, .values = {waiter->key}});
    remove(waiter);
  }
}

std::optional<StoreServer::Clock::time_point> StoreServer::deadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

void StoreServer::forget(std::size_t rank) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const auto next = std::next(waiter);
    if (waiter->rank == rank)
      remove(waiter);
    waiter = next;
  }
}

void StoreServer::close() {
  closed_ = true;
  while (!waiters_.empty()) {
    const auto waiter = waiters_.begin();
    reply(waiter->rank, waiter->request, {.status = StoreStatus::closed});
    remove(waiter);
  }
}

} // namespace muster::process

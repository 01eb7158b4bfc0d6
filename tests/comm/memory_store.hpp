#pragma once

#include <muster/comm/store.hpp>
#include <muster/launch/error.hpp>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

/// A store for ranks that are threads of one process.
class MemoryStore : public muster::Store {
public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }

  std::string get(const std::string& key, Millis timeout) override {
    std::unique_lock lock(mutex_);
    await(lock, timeout, [&] { return values_.contains(key); });
    return values_.at(key);
  }

  std::vector<std::string> get_all(const std::vector<std::string>& keys, Millis timeout) override {
    std::vector<std::string> values;
    for (const std::string& key : keys)
      values.push_back(get(key, timeout));
    return values;
  }

  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const std::int64_t sum = (value.empty() ? 0 : std::stoll(value)) + amount;
    value = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }

  std::string compare_set(const std::string& key,
                          const std::string& expected,
                          const std::string& desired) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end() && !expected.empty())
      return expected;
    if (found == values_.end() || found->second == expected)
      values_[key] = desired;
    changed_.notify_all();
    return values_.at(key);
  }

  void append(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] += value;
    changed_.notify_all();
  }

  void wait(const std::vector<std::string>& keys, Millis timeout) override {
    std::unique_lock lock(mutex_);
    await(lock, timeout, [&] { return has(keys); });
  }

  bool check(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(mutex_);
    return has(keys);
  }

  bool erase(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return values_.erase(key) > 0;
  }

  std::int64_t size() override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(values_.size());
  }

  std::vector<std::string> keys() override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [key, value] : values_)
      all.push_back(key);
    return all;
  }

  void push(const std::string& queue, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    queues_[queue].push_back(value);
    changed_.notify_all();
  }

  std::optional<std::string> pop(const std::string& queue, Millis timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return !queues_[queue].empty(); }))
      return std::nullopt;
    std::string value = queues_[queue].front();
    queues_[queue].pop_front();
    return value;
  }

  std::int64_t queue_size(const std::string& queue) override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(queues_[queue].size());
  }

private:
  bool has(const std::vector<std::string>& keys) const {
    for (const std::string& key : keys)
      if (!values_.contains(key))
        return false;
    return true;
  }

  template <class Ready>
  void await(std::unique_lock<std::mutex>& lock, Millis timeout, Ready ready) {
    if (!changed_.wait_for(lock, timeout, ready))
      throw muster::Timeout("the store waited in vain");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;
};

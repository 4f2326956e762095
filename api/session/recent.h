// Recent: values by text, of which the least recently used go first. It keeps what is worth keeping
// about graphs: a client that builds the same graph again pays for a look-up. From any thread.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace kiln::api {

template <class Value>
class Recent {
 public:
  explicit Recent(size_t capacity) : capacity_(capacity) {}

  // Null where nothing is kept under the key.
  std::shared_ptr<const Value> Find(std::string_view key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }

  // Drops the entries whose keys begin so; `seen` is called with each.
  template <class Seen>
  void Erase(std::string_view prefix, Seen&& seen) {
    const std::lock_guard lock(mutex_);
    for (auto at = recent_.begin(); at != recent_.end();) {
      const auto entry = at++;
      if (!entry->first.starts_with(prefix)) continue;
      seen(std::as_const(*entry));
      by_key_.erase(entry->first);
      recent_.erase(entry);
    }
  }

  // Keeps the value, unless there is one under the key already.
  void Insert(std::string key, std::shared_ptr<const Value> value) {
    const std::lock_guard lock(mutex_);
    if (by_key_.contains(key)) return;
    recent_.emplace_front(std::move(key), std::move(value));
    by_key_[recent_.front().first] = recent_.begin();
    while (recent_.size() > capacity_) {
      by_key_.erase(recent_.back().first);
      recent_.pop_back();
    }
  }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Value>>;

  const size_t capacity_;
  std::mutex mutex_;
  std::list<Entry> recent_;  // most recent first
  std::unordered_map<std::string_view, typename std::list<Entry>::iterator>
      by_key_;  // the whole text: nothing collides
};

}  // namespace kiln::api

// A queue that serves its owners in turn: an owner with many items delays the others by one item a round, no
// more. Not safe by itself; core/work/background.cpp holds its mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <utility>

namespace exphil::core {

template <class Item>
class FairQueue {
 public:
  std::size_t size() const { return size_; }

  // Strong guarantee: where memory is short this throws and changes nothing that pop() sees.
  void push(std::uint64_t owner, Item item) {
    const auto found = places_.find(owner);
    if (found != places_.end()) {
      found->second->items.push_back(std::move(item));
    } else {
      std::list<Turn> turn(1);
      turn.front().owner = owner;
      turn.front().items.push_back(std::move(item));
      places_.emplace(owner, turn.begin());
      turns_.splice(turns_.end(), turn);
    }
    ++size_;
  }

  // The first item of the owner whose turn it is; the owner goes to the end.
  Item pop() {
    const auto turn = turns_.begin();
    Item item = std::move(turn->items.front());
    turn->items.pop_front();
    --size_;
    if (turn->items.empty()) {
      places_.erase(turn->owner);
      turns_.erase(turn);
    } else {
      turns_.splice(turns_.end(), turns_, turn);
    }
    return item;
  }

 private:
  struct Turn {
    std::uint64_t owner = 0;
    std::deque<Item> items;  // never empty
  };
  std::list<Turn> turns_;
  std::unordered_map<std::uint64_t, typename std::list<Turn>::iterator> places_;
  std::size_t size_ = 0;
};

}  // namespace exphil::core

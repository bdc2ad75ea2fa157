// Objects that many threads push, and that one thread at a time takes in their order. No call waits for
// another thread: not for one that the system has taken off its core in the middle of a call either, as with
// a lock. Used by core/session/gatherer.hpp.
#pragma once

#include <atomic>
#include <utility>

namespace exphil::core {

// Node has a member `Node* next_`, which is the list's while the node is in it. The list owns no node.
template <class Node>
class PushList {
 public:
  PushList() = default;
  PushList(const PushList&) = delete;
  PushList& operator=(const PushList&) = delete;

  // From any thread. True where nothing had been pushed since take() last looked.
  bool push(Node* node) noexcept {
    Node* before = newest_.load(std::memory_order_relaxed);
    do {
      node->next_ = before;
    } while (!newest_.compare_exchange_weak(before, node));
    return before == nullptr;
  }

  // From any thread; in one order (seq_cst) with every push.
  bool empty() const noexcept { return newest_.load() == nullptr && oldest_.load() == nullptr; }

  // By one thread at a time: the oldest node; null where the list is empty.
  Node* take() noexcept {
    Node* node = oldest_.load(std::memory_order_relaxed);
    if (node == nullptr) node = in_order(newest_.exchange(nullptr));
    if (node != nullptr) oldest_.store(std::exchange(node->next_, nullptr));
    return node;
  }
  // By the thread that takes: the same node, which stays in the list.
  Node* oldest() noexcept {
    if (oldest_.load(std::memory_order_relaxed) == nullptr)
      oldest_.store(in_order(newest_.exchange(nullptr)));
    return oldest_.load(std::memory_order_relaxed);
  }

 private:
  // From the newest back, each has the one before it; then from the oldest on, the one after it.
  static Node* in_order(Node* newest) noexcept {
    Node* first = nullptr;
    while (newest != nullptr) {
      Node* const before = std::exchange(newest->next_, first);
      first = std::exchange(newest, before);
    }
    return first;
  }

  // Of their own cache line: every push writes the first, every take the second.
  alignas(64) std::atomic<Node*> newest_{nullptr};  // since take() found no older ones; linked backwards
  alignas(64) std::atomic<Node*> oldest_{nullptr};  // linked forwards
};

}  // namespace exphil::core

// Objects that many threads push and one takes: none is lost, and each thread's are in its order.
#include "core/work/push_list.hpp"

#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace exphil::core {

namespace {

struct Node {
  std::size_t thread = 0, number = 0;
  Node* next_ = nullptr;
};

}  // namespace

TEST_CASE("a list gives what was pushed in its order, and says when it was empty", "[work]") {
  PushList<Node> list;
  std::vector<Node> nodes(5);
  CHECK(list.empty());
  CHECK(list.take() == nullptr);
  CHECK(list.push(&nodes[0]));
  CHECK_FALSE(list.push(&nodes[1]));
  CHECK(list.take() == &nodes[0]);
  CHECK(list.push(&nodes[2]));  // nothing since the last look
  CHECK(list.take() == &nodes[1]);
  CHECK_FALSE(list.empty());
  CHECK_FALSE(list.push(&nodes[3]));
  CHECK(list.oldest() == &nodes[2]);
  CHECK(list.push(&nodes[0]));
  CHECK_FALSE(list.empty());
  CHECK(list.oldest() == &nodes[2]);
  CHECK(list.take() == &nodes[2]);
  CHECK(list.take() == &nodes[3]);
  CHECK(list.take() == &nodes[0]);
  CHECK(list.empty());
  CHECK(list.oldest() == nullptr);
  CHECK(list.take() == nullptr);
  CHECK(list.push(&nodes[4]));
  CHECK(list.take() == &nodes[4]);
}

TEST_CASE("many threads push into a list while one takes", "[work]") {
  constexpr std::size_t kThreads = 4, kEach = 5000;
  PushList<Node> list;
  std::vector<std::vector<Node>> nodes(kThreads, std::vector<Node>(kEach));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t k = 0; k < kEach; ++k) {
        nodes[i][k].thread = i, nodes[i][k].number = k;
        list.push(&nodes[i][k]);
      }
    });
  }
  std::vector<std::size_t> next(kThreads, 0);
  std::size_t taken = 0, wrong = 0;
  while (taken < kThreads * kEach) {
    const Node* const node = list.take();
    if (node == nullptr) {
      std::this_thread::yield();
      continue;
    }
    wrong += node->number != next[node->thread]++;
    ++taken;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(list.empty());
}

}  // namespace exphil::core

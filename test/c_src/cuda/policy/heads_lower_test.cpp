// Policies with a matrix state, which no kernel runs yet: a GPU refuses them in words that say what to do.
#include "cuda/policy/lower.hpp"
#include "support/catch.hpp"
#include "support/errors.hpp"
#include "support/mamba3_policy.hpp"

namespace exphil::cuda {

TEST_CASE("a GPU refuses a policy with a matrix state, and says where it runs",
          "[cuda][policy][lower][heads]") {
  for (const test::PolicyForm& form : test::head_forms(5, 3)) {
    const test::CaughtError error = test::error_of([&] { lower(form.weights->config); });
    INFO(form.name << ": " << error.message);
    CHECK(error.kind == core::ErrorKind::unsupported);
    CHECK(error.argument == ":backend");
    CHECK(error.says("do not run on a GPU yet: load this one with backend: :host"));
  }
}

TEST_CASE("a GPU refuses a Mamba-3 policy by its name", "[cuda][policy][lower][heads]") {
  for (const test::PolicyForm& form : test::mamba3_forms(5, 3)) {
    const test::CaughtError error = test::error_of([&] { lower(form.weights->config); });
    INFO(form.name << ": " << error.message);
    CHECK(error.kind == core::ErrorKind::unsupported);
    CHECK(error.argument == ":backend");
    CHECK(error.says("policies of Mamba-3 do not run on a GPU yet: load this one with backend: :host"));
  }
}

}  // namespace exphil::cuda

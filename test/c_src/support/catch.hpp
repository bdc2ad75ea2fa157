// Catch2, version 2 (one header) or 3.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;  // where version 2 declares it
#else
#include <catch2/catch.hpp>
#endif

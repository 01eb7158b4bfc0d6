#pragma once

// Catch2 v3 where it is installed, else v2: their test macros are the same.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
using Catch::Approx;
namespace Catch {
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
using Matchers::StartsWith;
} // namespace Catch
#else
#include <catch2/catch.hpp>
#endif

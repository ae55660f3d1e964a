// Random command lines: every one ends with status 0, 1 or 2 and, if refused, one line of text.
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/models.hpp"
#include "cli/verbs.hpp"

namespace megamoe::cli {
namespace {

constexpr int kNumVectors = 50000;

const std::vector<std::string>& flags() {
  static const std::vector<std::string> list = {"--model",
                                                "--hidden",
                                                "--intermediate",
                                                "--experts",
                                                "--top-k",
                                                "--precision",
                                                "--ranks",
                                                "--tokens",
                                                "--shared-experts",
                                                "--capacity",
                                                "--gpu",
                                                "--map",
                                                "--json",
                                                "--help",
                                                "--virtual",
                                                "--processes",
                                                "--activation",
                                                "--routing",
                                                "--seed",
                                                "--checkpoint",
                                                "--layer",
                                                "--input",
                                                "--output",
                                                "--repeat",
                                                "--deadline",
                                                "--num-sms",
                                                "--backend",
                                                "--check",
                                                "--reserved-sms",
                                                "--block-rows",
                                                "--waves",
                                                "--ctas",
                                                "--seeds",
                                                "--weight-sets",
                                                "--flush",
                                                "--chart",
                                                "--perfetto",
                                                "--svg",
                                                "--events",
                                                "--no-measure",
                                                "--cold",
                                                "-h",
                                                "--",
                                                "-",
                                                "++",
                                                "--rank"};
  return list;
}

const std::vector<std::string>& values() {
  static const std::vector<std::string> list = {"0",
                                                "1",
                                                "2",
                                                "8",
                                                "72",
                                                "73",
                                                "128",
                                                "256",
                                                "-1",
                                                "1e3",
                                                "0x10",
                                                "2944",
                                                "2880",
                                                "4096",
                                                "",
                                                " ",
                                                "1,2",
                                                "8,8",
                                                "0,8,48,192",
                                                ",",
                                                "nan",
                                                "inf",
                                                "1e309",
                                                "0.5",
                                                "fp8",
                                                "bf16",
                                                "mxfp4",
                                                "mxfp8_mxfp4",
                                                "fp64",
                                                "H200",
                                                "B200",
                                                "h100",
                                                "cpu",
                                                "cuda",
                                                "auto",
                                                "uniform",
                                                "masked:0.5",
                                                "masked:2",
                                                "none",
                                                "skewed",
                                                "full",
                                                "rows:4",
                                                "rows:",
                                                "one-rank",
                                                "one-expert",
                                                "balanced",
                                                "\n",
                                                "\xff\xfe",
                                                "9223372036854775808",
                                                "-9223372036854775809",
                                                "18446744073709551616",
                                                "--ranks",
                                                "%s%n",
                                                "/nonexistent/file.safetensors"};
  return list;
}

class Fuzzer {
 public:
  explicit Fuzzer(std::uint64_t seed) : random_(seed) {}

  Arguments next() {
    Arguments arguments;
    if (!chance(0.02)) arguments.push_back(chance(0.95) ? std::string(any_verb()) : junk());
    if (chance(0.7)) {
      arguments.emplace_back("--model");
      arguments.emplace_back(models()[below(models().size())].name);
    }
    const std::size_t more = below(6);
    for (std::size_t i = 0; i < more; ++i) add_flag(arguments);
    if (chance(0.1)) mutate(arguments);
    return arguments;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  bool chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  std::string_view any_verb() { return verbs()[below(verbs().size())].name; }

  std::string junk() {
    std::string text(below(20), '\0');
    for (char& c : text) c = static_cast<char>(1 + below(255));
    return text;
  }

  std::string value() { return chance(0.9) ? values()[below(values().size())] : junk(); }

  void add_flag(Arguments& arguments) {
    const std::string& flag = flags()[below(flags().size())];
    if (chance(0.2)) {
      arguments.push_back(flag + "=" + value());
    } else {
      arguments.push_back(flag);
      if (chance(0.85)) arguments.push_back(value());
    }
  }

  void mutate(Arguments& arguments) {
    if (arguments.empty()) return;
    std::string& argument = arguments[below(arguments.size())];
    switch (below(3)) {
      case 0:
        argument.insert(below(argument.size() + 1), junk());
        break;
      case 1:
        argument.erase(below(argument.size() + 1));
        break;
      default:
        argument.append(100000, 'x');
    }
  }

  std::mt19937_64 random_;
};

std::string readable(const Arguments& arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    text.append("[").append(one_line(argument.substr(0, 80))).append("]");
  }
  return text;
}

TEST(Fuzz, EveryCommandLineEndsWell) {
  Fuzzer fuzzer(20240229);
  int counts[3] = {0, 0, 0};
  for (int i = 0; i < kNumVectors; ++i) {
    const Arguments arguments = fuzzer.next();
    std::ostringstream out;
    std::ostringstream err;
    Io io{.out = out, .err = err};
    int status = -1;
    ASSERT_NO_THROW(status = dispatch(arguments, io, Depth::validate)) << readable(arguments);
    ASSERT_TRUE(status == kDone || status == kCheckFailed || status == kBadUsage)
        << readable(arguments);
    ++counts[status];
    if (arguments.empty()) continue;
    const std::string text = err.str();
    if (status == kDone) {
      ASSERT_EQ(text, "") << readable(arguments);
    } else {
      ASSERT_EQ(text.rfind("megamoe", 0), 0U) << readable(arguments);
      ASSERT_EQ(text.find('\n'), text.size() - 1) << readable(arguments);
    }
  }
  // Arguments alone never fail a check, and both other ends are met often.
  EXPECT_EQ(counts[kCheckFailed], 0);
  EXPECT_GT(counts[kDone], kNumVectors / 20);
  EXPECT_GT(counts[kBadUsage], kNumVectors / 20);
}

}  // namespace
}  // namespace megamoe::cli

// What doctor says of machines: made-up ones, and this one.
#include <gmock/gmock.h>

#include "cli/doctor.hpp"
#include "host/devices.hpp"
#include "in_process.hpp"

namespace megamoe::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

GpuFacts hopper(int index) {
  return {.index = index,
          .name = "Hopper GPU",
          .arch = "9.0",
          .sms = 132,
          .memory_bytes = std::uint64_t{141} << 30U,
          .free_bytes = std::uint64_t{140} << 30U,
          .supported = true,
          .sm_budget = 132,
          .posix_descriptors = true,
          .fabric = false,
          .multicast = true};
}

PeerFacts linked(int from, int to) {
  return {.from = from,
          .to = to,
          .access = true,
          .native_atomics = true,
          .bandwidth_gbs = 380.25,
          .latency_us = 0.75};
}

/// Two GPUs on which everything works.
MachineFacts good_machine() {
  return {.cuda_build = true,
          .driver = 13000,
          .driver_release = "580.95.05",
          .runtime = 13000,
          .gpus = {hopper(0), hopper(1)},
          .peers = {linked(0, 1), linked(1, 0)},
          .nccl = {.found = true, .version = "2.27.7"},
          .limits = {.shm_bytes = std::uint64_t{64} << 30U,
                     .shm_free_bytes = std::uint64_t{63} << 30U,
                     .memlock_bytes = std::nullopt,
                     .open_files = 1024}};
}

TEST(CliDoctor, AGoodMachineWillRun) {
  const MachineFacts facts = good_machine();
  EXPECT_THAT(advice(facts), IsEmpty());
  EXPECT_THAT(notes(facts), IsEmpty());
  EXPECT_THAT(doctor_text(facts),
              AllOf(HasSubstr("driver   CUDA 13.0, release 580.95.05\n"),
                    HasSubstr("NCCL     2.27.7\n"), HasSubstr("0 -> 1"), HasSubstr("380"),
                    HasSubstr("0.75"), HasSubstr("locked memory unlimited"),
                    HasSubstr("\nwill run\n"), Not(HasSubstr("missing:"))));
}

TEST(CliDoctor, EachMissingThingIsNamed) {
  MachineFacts facts = good_machine();
  facts.driver = 0;
  EXPECT_THAT(advice(facts), ElementsAre(HasSubstr("no driver: CPU backend only")));
  EXPECT_THAT(doctor_text(facts),
              AllOf(HasSubstr("driver   none\n"), HasSubstr("\nmissing: no driver")));

  facts = good_machine();
  facts.driver = 12080;
  EXPECT_THAT(advice(facts), ElementsAre(HasSubstr("runs CUDA 12.8, this build needs 13.0")));

  facts = good_machine();
  facts.gpus.clear();
  facts.peers.clear();
  facts.gpu_reason = "no CUDA-capable device is detected";
  EXPECT_THAT(advice(facts), ElementsAre(AllOf(HasSubstr("no GPU: CPU backend only"),
                                               HasSubstr("no CUDA-capable device"))));

  facts = good_machine();
  facts.cuda_build = false;
  facts.runtime = 0;
  facts.gpus.clear();
  EXPECT_THAT(advice(facts), ElementsAre(HasSubstr("MEGAMOE_CUDA=ON")));

  facts = good_machine();
  for (GpuFacts& gpu : facts.gpus) {
    gpu.supported = false;
    gpu.arch = "8.0";
  }
  EXPECT_THAT(advice(facts),
              ElementsAre(AllOf(HasSubstr("no supported GPU"), HasSubstr("has 8.0"))));
  EXPECT_THAT(notes(facts), Contains(HasSubstr("GPU 1 (Hopper GPU, 8.0) is not used")));
}

TEST(CliDoctor, PairsThatCannotWorkAreNamed) {
  MachineFacts facts = good_machine();
  facts.peers[0] = {.from = 0, .to = 1};
  facts.peers[1].native_atomics = false;
  EXPECT_THAT(advice(facts), ElementsAre(HasSubstr("GPU 0 to GPU 1: no peer access"),
                                         HasSubstr("GPU 1 to GPU 0: no native atomics")));
  facts = good_machine();
  facts.peers[1].latency_us = std::nullopt;
  facts.peers[1].problem = "a flag did not arrive within 2 s";
  EXPECT_THAT(advice(facts), ElementsAre("GPU 1 to GPU 0: a flag did not arrive within 2 s"));
  facts = good_machine();
  facts.gpus[1].supported = false;
  facts.peers[0].access = false;
  EXPECT_THAT(advice(facts), IsEmpty()) << "a GPU that is not used needs no link";
}

TEST(CliDoctor, NotesWhatNeedNotChange) {
  MachineFacts facts = good_machine();
  facts.nccl = {};
  facts.limits.shm_free_bytes = std::uint64_t{64} << 20U;
  EXPECT_THAT(notes(facts), ElementsAre(HasSubstr("libnccl.so.2"), HasSubstr("64 MiB free")));
  EXPECT_THAT(advice(facts), IsEmpty());
}

/// The fields that scripts rely on.
void expect_schema(const nlohmann::json& json) {
  EXPECT_TRUE(json.at("ok").is_boolean());
  EXPECT_TRUE(json.at("cuda_build").is_boolean());
  EXPECT_TRUE(json.at("driver").is_null() || json.at("driver").is_string());
  EXPECT_TRUE(json.at("runtime").is_null() || json.at("runtime").is_string());
  EXPECT_TRUE(json.at("driver_release").is_string());
  EXPECT_TRUE(json.at("gpus").is_array());
  EXPECT_TRUE(json.at("peers").is_array());
  EXPECT_TRUE(json.at("nccl").at("found").is_boolean());
  EXPECT_TRUE(json.at("nccl").at("version").is_string());
  for (const char* limit : {"shm_bytes", "shm_free_bytes", "memlock_bytes", "open_files"}) {
    const auto& value = json.at("limits").at(limit);
    EXPECT_TRUE(value.is_null() || value.is_number_unsigned()) << limit;
  }
  EXPECT_TRUE(json.at("advice").is_array());
  EXPECT_TRUE(json.at("notes").is_array());
  EXPECT_EQ(json.at("ok").get<bool>(), json.at("advice").empty());
}

TEST(CliDoctor, JsonHasEveryField) {
  const auto json = nlohmann::json::parse(doctor_json(good_machine()));
  expect_schema(json);
  EXPECT_EQ(json.at("driver"), "13.0");
  const auto& gpu = json.at("gpus").at(1);
  EXPECT_EQ(gpu.at("index"), 1);
  EXPECT_EQ(gpu.at("sm_budget"), 132);
  EXPECT_EQ(gpu.at("fabric"), false);
  EXPECT_EQ(gpu.at("memory_bytes"), std::uint64_t{141} << 30U);
  const auto& pair = json.at("peers").at(0);
  EXPECT_EQ(pair.at("from"), 0);
  EXPECT_EQ(pair.at("to"), 1);
  EXPECT_DOUBLE_EQ(pair.at("bandwidth_gbs").get<double>(), 380.25);
  MachineFacts facts = good_machine();
  facts.peers[0].latency_us = std::nullopt;
  EXPECT_TRUE(
      nlohmann::json::parse(doctor_json(facts)).at("peers").at(0).at("latency_us").is_null());
}

TEST(CliDoctor, ThisMachine) {
  const Result text = megamoe({"doctor"});
  const Result printed = megamoe({"doctor", "--json", "--no-measure"});
  EXPECT_EQ(text.err + printed.err, "");
  const auto json = nlohmann::json::parse(printed.out);
  expect_schema(json);
  EXPECT_EQ(printed.status, json.at("ok").get<bool>() ? kDone : kCheckFailed);
  EXPECT_FALSE(json.at("limits").at("shm_bytes").is_null());
  if (find_devices().usable.empty()) {
    EXPECT_EQ(text.status, kCheckFailed);
    EXPECT_THAT(text.out, AllOf(HasSubstr("CPU backend only"), HasSubstr("will not run")));
    EXPECT_FALSE(json.at("advice").empty());
  }
}

TEST(CliDoctor, Arguments) {
  EXPECT_THAT(megamoe({"doctor", "--help"}).out, HasSubstr("--no-measure"));
  EXPECT_THAT(refusal_of({"doctor", "--jsn"}), HasSubstr("unknown flag '--jsn'"));
  EXPECT_THAT(refusal_of({"doctor", "now"}), HasSubstr("unexpected argument 'now'"));
}

}  // namespace
}  // namespace megamoe::cli

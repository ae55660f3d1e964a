#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "sim/machine.hpp"
#include "sim/sim_env.hpp"

namespace megamoe::sim {
namespace {

/// A few agents on two GPUs and a few words: agents 0 and 1 in one CTA, 2 in another CTA of the
/// same GPU, 3 on the other GPU. Slot i + 4 belongs to the copies of agent i.
class Litmus {
 public:
  using Body = std::function<void(SimEnv&)>;

  /// Runs the bodies with one seed; returns the failure.
  std::string run(u64 seed, const std::vector<Body>& bodies) {
    SeededPolicy policy(seed);
    const std::vector<Place> places = {{0, 0}, {0, 0}, {0, 1}, {1, 2},
                                       {0, 0}, {0, 0}, {0, 1}, {1, 2}};
    std::array<Payload::Shape, kCellKinds> shapes;
    shapes.fill({4, 1, 1});
    Machine machine(policy, 10'000, places, Payload(places, 1, 1, shapes),
                    Mutation(Mutant::none, {}), nullptr);
    for (const u64& word : words)
      machine.words().add_word(&word,
                               {WordKind::barrier, 0, 0, 0, static_cast<u32>(&word - words)});
    const auto at_launch = std::make_shared<const View>(places.size());
    for (u32 i = 0; i < bodies.size(); ++i) {
      if (!bodies[i]) continue;
      Agent& agent = machine.scheduler().make_agent(places.size());
      agent.slot = i;
      agent.async_slot = i + 4;
      agent.at_launch = at_launch;
      agent.body = [&machine, &agent, body = bodies[i]] {
        SimEnv env(machine, agent);
        body(env);
      };
      machine.scheduler().add(agent);
    }
    return machine.scheduler().run();
  }

  /// All results that `observe` reports over many seeds; no run may fail.
  std::set<u64> outcomes(const std::vector<Body>& bodies, const std::function<u64()>& observe) {
    std::set<u64> seen;
    for (u64 seed = 0; seed < 600; ++seed) {
      EXPECT_EQ(run(seed, bodies), "") << "seed " << seed;
      seen.insert(observe());
    }
    return seen;
  }
  /// True if some seed fails with a text that holds `part`.
  bool can_fail(const std::vector<Body>& bodies, const std::string& part) {
    for (u64 seed = 0; seed < 600; ++seed) {
      if (run(seed, bodies).find(part) != std::string::npos) return true;
    }
    return false;
  }
  bool never_fails(const std::vector<Body>& bodies) { return !can_fail(bodies, " "); }

  u64 words[4] = {};
};

constexpr CellName kCell{CellKind::x, 0, 0, 0, 0, 0};

template <Order O, Scope S>
void await(SimEnv& env, const u64* word, u64 value) {
  while (env.load<O, S>(word) != value) env.pause();
}

void write_cell(SimEnv& env, Proxy proxy = Proxy::generic) {
  env.machine().write(env.agent(), kCell, proxy, 1);
}
void read_cell(SimEnv& env, Proxy proxy = Proxy::generic) {
  env.machine().read(env.agent(), kCell, proxy);
}

TEST(SimMemory, StoreBufferingShowsStaleValues) {
  Litmus t;
  u64 a = 0;
  u64 b = 0;
  const auto seen = t.outcomes({[&](SimEnv& env) {
                                  env.store<Order::release, Scope::sys>(&t.words[0], u64{1});
                                  a = env.load<Order::acquire, Scope::sys>(&t.words[1]);
                                },
                                [&](SimEnv& env) {
                                  env.store<Order::release, Scope::sys>(&t.words[1], u64{1});
                                  b = env.load<Order::acquire, Scope::sys>(&t.words[0]);
                                }},
                               [&] { return a * 2 + b; });
  EXPECT_EQ(seen, (std::set<u64>{0, 1, 2, 3}));
}

TEST(SimMemory, MessagePassingNeedsReleaseAndAcquire) {
  Litmus t;
  u64 value = 0;
  const auto outcomes = [&]<Order R, Order A>() {
    return t.outcomes({[&](SimEnv& env) {
                         env.store<Order::relaxed, Scope::sys>(&t.words[0], u64{7});
                         env.store<R, Scope::sys>(&t.words[1], u64{1});
                       },
                       nullptr, nullptr,
                       [&](SimEnv& env) {
                         await<A, Scope::sys>(env, &t.words[1], 1);
                         value = env.load<Order::relaxed, Scope::sys>(&t.words[0]);
                       }},
                      [&] { return value; });
  };
  EXPECT_EQ((outcomes.operator()<Order::release, Order::acquire>()), (std::set<u64>{7}));
  EXPECT_EQ((outcomes.operator()<Order::relaxed, Order::acquire>()), (std::set<u64>{0, 7}));
  EXPECT_EQ((outcomes.operator()<Order::release, Order::relaxed>()), (std::set<u64>{0, 7}));
  // Publishes the state at launch only, not the store before it.
  EXPECT_EQ((outcomes.operator()<Order::launch_release, Order::acquire>()), (std::set<u64>{0, 7}));
}

TEST(SimMemory, OneWordNeverGoesBack) {
  Litmus t;
  u64 went_back = 0;
  const auto seen = t.outcomes({[&](SimEnv& env) {
                                  for (u64 i = 1; i <= 5; ++i)
                                    env.store<Order::relaxed, Scope::sys>(&t.words[0], i);
                                },
                                nullptr, nullptr,
                                [&](SimEnv& env) {
                                  u64 last = 0;
                                  for (int i = 0; i < 6; ++i) {
                                    const u64 now =
                                        env.load<Order::relaxed, Scope::sys>(&t.words[0]);
                                    if (now < last) went_back = 1;
                                    last = now;
                                  }
                                }},
                               [&] { return went_back; });
  EXPECT_EQ(seen, (std::set<u64>{0}));
}

TEST(SimMemory, ReadModifyWritesAreAtomicAndContinueAReleaseSequence) {
  Litmus t;
  const auto adder = [&](SimEnv& env) {
    env.fetch_add<Order::relaxed, Scope::sys>(&t.words[0], u64{1});
  };
  // The reader acquires from the writer's release through two relaxed additions.
  EXPECT_TRUE(t.never_fails({[&](SimEnv& env) {
                               write_cell(env);
                               env.fetch_add<Order::release, Scope::sys>(&t.words[0], u64{100});
                             },
                             adder, adder,
                             [&](SimEnv& env) {
                               await<Order::acquire, Scope::sys>(env, &t.words[0], 102);
                               read_cell(env);
                             }}));
}

TEST(SimMemory, ScopesMustReachBothWays) {
  Litmus t;
  const auto writer = [&]<Scope S>() {
    return [&](SimEnv& env) {
      write_cell(env);
      env.store<Order::release, S>(&t.words[0], u64{1});
    };
  };
  const auto reader = [&]<Scope S>() {
    return [&](SimEnv& env) {
      await<Order::acquire, S>(env, &t.words[0], 1);
      read_cell(env);
    };
  };
  // Same CTA, same GPU, other GPU.
  EXPECT_TRUE(t.never_fails(
      {writer.operator()<Scope::cta>(), reader.operator()<Scope::cta>(), nullptr, nullptr}));
  EXPECT_FALSE(t.never_fails(
      {writer.operator()<Scope::cta>(), nullptr, reader.operator()<Scope::gpu>(), nullptr}));
  EXPECT_TRUE(t.never_fails(
      {writer.operator()<Scope::gpu>(), nullptr, reader.operator()<Scope::gpu>(), nullptr}));
  EXPECT_FALSE(t.never_fails(
      {writer.operator()<Scope::gpu>(), nullptr, nullptr, reader.operator()<Scope::sys>()}));
  EXPECT_FALSE(t.never_fails(
      {writer.operator()<Scope::sys>(), nullptr, nullptr, reader.operator()<Scope::gpu>()}));
  EXPECT_TRUE(t.never_fails(
      {writer.operator()<Scope::sys>(), nullptr, nullptr, reader.operator()<Scope::sys>()}));
}

TEST(SimMemory, PayloadRacesAreFound) {
  Litmus t;
  EXPECT_TRUE(t.can_fail(
      {[](SimEnv& env) { write_cell(env); }, [](SimEnv& env) { read_cell(env); }}, "race on x@0"));
  // A read, then a write that is not ordered after it.
  EXPECT_TRUE(t.can_fail({[&](SimEnv& env) {
                            read_cell(env);
                            env.store<Order::relaxed, Scope::sys>(&t.words[0], u64{1});
                          },
                          [&](SimEnv& env) {
                            await<Order::acquire, Scope::sys>(env, &t.words[0], 1);
                            write_cell(env);
                          }},
                         "overwrites what is read"));
}

TEST(SimMemory, ProxiesNeedFencesInTheirDirection) {
  Litmus t;
  const auto pair = [&](Proxy first, Proxy second, int fence, bool wait_for_copy) {
    return std::vector<Litmus::Body>{[&t, first, fence, wait_for_copy](SimEnv& env) {
                                       write_cell(env, first);
                                       if (wait_for_copy) env.machine().complete_async(env.agent());
                                       if (fence == 1) env.fence_proxy_generic_to_async();
                                       if (fence == 2) env.fence_proxy_async_to_generic();
                                       env.store<Order::release, Scope::gpu>(&t.words[0], u64{1});
                                     },
                                     nullptr,
                                     [&t, second](SimEnv& env) {
                                       await<Order::acquire, Scope::gpu>(env, &t.words[0], 1);
                                       read_cell(env, second);
                                     }};
  };
  constexpr auto kGeneric = Proxy::generic;
  constexpr auto kAsync = Proxy::async;
  EXPECT_TRUE(t.can_fail(pair(kGeneric, kAsync, 0, true), "no proxy fence"));
  EXPECT_TRUE(t.can_fail(pair(kGeneric, kAsync, 2, true), "no proxy fence"));
  EXPECT_TRUE(t.never_fails(pair(kGeneric, kAsync, 1, true)));
  EXPECT_TRUE(t.can_fail(pair(kAsync, kGeneric, 0, true), "no proxy fence"));
  EXPECT_TRUE(t.can_fail(pair(kAsync, kGeneric, 1, true), "no proxy fence"));
  EXPECT_TRUE(t.never_fails(pair(kAsync, kGeneric, 2, true)));
  // Between CTAs, copies after copies need one of either direction.
  EXPECT_TRUE(t.can_fail(pair(kAsync, kAsync, 0, true), "asynchronous accesses of two CTAs"));
  EXPECT_TRUE(t.never_fails(pair(kAsync, kAsync, 1, true)));
  // A copy that nobody waited for is not ordered at all.
  EXPECT_TRUE(t.can_fail(pair(kAsync, kGeneric, 2, false), "race"));
}

TEST(SimMemory, CopiesArriveAtABarrierWhenTheyAreComplete) {
  Litmus t;
  EXPECT_TRUE(t.never_fails({[&](SimEnv& env) {
                               write_cell(env, Proxy::async);
                               env.machine().async_arrive(env.agent(), &t.words[0]);
                             },
                             [&](SimEnv& env) {
                               await<Order::acquire, Scope::cta>(env, &t.words[0], 1);
                               env.fence_proxy_async_to_generic();
                               read_cell(env);
                             }}));
}

// Who polls two words learns from the second that its value of the first is old: it must not sleep.
TEST(SimMemory, AWaitForTwoWordsMissesNothing) {
  Litmus t;
  const auto seen = t.outcomes({[&](SimEnv& env) {
                                  env.store<Order::relaxed, Scope::sys>(&t.words[0], u64{1});
                                  env.store<Order::release, Scope::sys>(&t.words[1], u64{1});
                                },
                                nullptr, nullptr,
                                [&](SimEnv& env) {
                                  while (env.load<Order::acquire, Scope::sys>(&t.words[0]) +
                                             env.load<Order::acquire, Scope::sys>(&t.words[1]) !=
                                         2)
                                    env.pause();
                                }},
                               [] { return 0; });
  EXPECT_EQ(seen, (std::set<u64>{0}));
}

TEST(SimMemory, DeadlockNamesWhoWaitsForWhat) {
  Litmus t;
  const std::string text =
      t.run(1, {[&](SimEnv& env) { await<Order::acquire, Scope::sys>(env, &t.words[2], 1); }});
  EXPECT_NE(text.find("nobody can go on"), std::string::npos) << text;
  EXPECT_NE(text.find("polls barrier@0[0][2] = 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace megamoe::sim
